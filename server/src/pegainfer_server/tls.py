"""TLS of the server's connections: files that are tried before anything slow begins."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Self

import msgspec

from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from pegainfer_server.options import ServeOptions

KEY_PASSWORD_VARIABLE = "PEGAINFER_SSL_KEYFILE_PASSWORD"


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files, and the password of the key.

    Attributes:
        certfile: Certificate chain, with the key when `keyfile` is None.
        keyfile: The key.
        ca_certs: Authorities of which clients must show a certificate; None asks for none.
        password: Of an encrypted key.
    """

    certfile: str
    keyfile: str | None = None
    ca_certs: str | None = None
    password: str | None = None

    @classmethod
    def checked(cls, options: ServeOptions) -> Self | None:
        """The files that flags name, once they have been loaded for a try.

        Raises:
            CommandFault: A file cannot be used, or flags are missing.
        """
        if options.ssl_certfile is None:
            for flag, value in (
                ("--ssl-keyfile", options.ssl_keyfile),
                ("--ssl-ca-certs", options.ssl_ca_certs),
            ):
                if value is not None:
                    raise CommandFault(f"{flag} needs --ssl-certfile, the server's certificate")
            return None
        files = cls(
            certfile=options.ssl_certfile,
            keyfile=options.ssl_keyfile,
            ca_certs=options.ssl_ca_certs,
            password=os.environ.get(KEY_PASSWORD_VARIABLE),
        )
        files._try()
        return files

    @property
    def client_certificates(self) -> ssl.VerifyMode:
        """Whether clients must show one."""
        return ssl.CERT_NONE if self.ca_certs is None else ssl.CERT_REQUIRED

    def _try(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Without a password the library would ask for one on the terminal.
        password = self.password or ""
        key = f" with --ssl-keyfile {self.keyfile}" if self.keyfile else ""
        try:
            context.load_cert_chain(self.certfile, self.keyfile, lambda: password)
        except (OSError, ValueError) as error:
            raise CommandFault(
                f"--ssl-certfile {self.certfile}{key} cannot be used: {_words(error)}; both "
                f"must be PEM and match, {KEY_PASSWORD_VARIABLE} decrypts an encrypted key"
            ) from error
        if self.ca_certs is None:
            return
        try:
            context.load_verify_locations(self.ca_certs)
        except (OSError, ValueError) as error:
            raise CommandFault(
                f"--ssl-ca-certs {self.ca_certs} cannot be used: {_words(error)}"
            ) from error


def _words(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
