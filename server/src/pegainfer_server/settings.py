"""What the application needs of the command line, resolved: names, keys, limits."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.plugin import CommandFault
from pegainfer_server.tls import TlsFiles
from pegainfer_server.trace_export import TraceExport
from pegainfer_server.web_names import known_hosts, known_origins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_server.options import ServeOptions

API_KEY_VARIABLE = "PEGAINFER_API_KEY"


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one server; times in seconds.

    Attributes:
        model_names: Names the model is served under; answers show the first.
        model_root: Path of the checkpoint.
        host: Address listened on; decides whether the Host header is checked.
        key_digests: SHA-256 of each accepted API key; none means no key is asked for.
        cors_origins: Origins of web pages that may call, "*" for all.
        allowed_hosts: Names accepted in the Host header beside the loopback's own.
        sampling_flags: Sampling defaults from the command line.
        max_queue: Requests that may wait beyond those that run.
        max_body_bytes: Largest request body.
        ping_interval_s: Silence before a stream gets a comment.
        shutdown_timeout_s: What running requests get after SIGTERM.
        dev: Whether development routes exist.
        lora: Whether routes that load and unload adapters exist.
        tls: Certificate and key; None for plain HTTP.
        trace_export: Where traces go; None for no traces.
    """

    model_names: tuple[str, ...]
    model_root: str = ""
    host: str = "127.0.0.1"
    key_digests: tuple[bytes, ...] = ()
    cors_origins: frozenset[str] = frozenset()
    allowed_hosts: frozenset[str] = frozenset()
    sampling_flags: dict[str, float | int] = {}
    max_queue: int = 1024
    max_body_bytes: int = 32 << 20
    ping_interval_s: float = 15.0
    shutdown_timeout_s: float = 10.0
    dev: bool = False
    lora: bool = False
    tls: TlsFiles | None = None
    trace_export: TraceExport | None = None

    @classmethod
    def resolve(
        cls, options: ServeOptions, model_dir: str, *, lora: bool = False
    ) -> ServerSettings:
        """Read key files and fill in defaults.

        Args:
            options: The server's flags.
            model_dir: The checkpoint.
            lora: Whether the engine takes adapters.

        Raises:
            CommandFault: A flag's file or value cannot be used.
        """
        return cls(
            model_names=tuple(options.served_model_name) or (Path(model_dir).name or "model",),
            model_root=model_dir,
            host=options.host,
            key_digests=_key_digests(options.api_key, options.api_key_file),
            cors_origins=known_origins(options.cors_origin),
            allowed_hosts=known_hosts(options.allowed_host),
            sampling_flags=_sampling_flags(options.sampling_defaults),
            max_queue=options.max_queue,
            max_body_bytes=options.max_body_bytes,
            ping_interval_s=options.ping_interval,
            shutdown_timeout_s=options.shutdown_timeout,
            dev=options.dev,
            lora=lora,
            tls=TlsFiles.checked(options),
            trace_export=TraceExport.resolve(options.otlp_endpoint, os.environ),
        )


def taken_name(adapter: str, model_names: Sequence[str]) -> str | None:
    """The name of the model that requests could not tell from an adapter's, if there is one."""
    meant = {adapter, *(f"{name}:{adapter}" for name in model_names)}
    return next((name for name in model_names if name in meant), None)


def refuse_taken_names(adapters: Sequence[str], model_names: Sequence[str]) -> None:
    """Refuse adapters of `--lora` that requests could not tell from the model.

    Raises:
        CommandFault: There is one.
    """
    for word in adapters:
        taken = taken_name(word.partition("=")[0], model_names)
        if taken is not None:
            raise CommandFault(
                f"--lora {word}: the model itself is served as {taken!r}; choose another name, or "
                "another --served-model-name"
            )


class _SamplingFlags(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


def digest(key: bytes) -> bytes:
    """What is kept and compared of an API key."""
    return hashlib.sha256(key).digest()


def _key_digests(given: Sequence[str], path: str | None) -> tuple[bytes, ...]:
    if any(not key.strip() for key in given):
        # An unset variable in a script must not become a key, nor a server without one.
        raise CommandFault("--api-key is empty; give a key, or leave the flag out for none")
    keys = [key.strip() for key in given]
    if path is not None:
        keys += _keys_in(path)
    if from_environment := os.environ.get(API_KEY_VARIABLE, "").strip():
        keys.append(from_environment)
    return tuple(dict.fromkeys(digest(key.encode()) for key in keys))


def _keys_in(path: str) -> list[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFault(f"--api-key-file {path} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        # The words of a comment must not become keys.
        if len(line.split()) > 1 or line.lstrip().startswith("#"):
            raise CommandFault(
                f"--api-key-file {path}: line {number} is no key; write one a line, without "
                "blanks and without comments"
            )
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise CommandFault(f"--api-key-file {path} holds no key; write one a line")
    return keys


def _sampling_flags(text: str | None) -> dict[str, float | int]:
    if text is None:
        return {}
    try:
        flags = msgspec.json.decode(text, type=_SamplingFlags)
    except msgspec.DecodeError as error:
        raise CommandFault(f"--sampling-defaults {text}: {error}") from error
    values: dict[str, float | int] = msgspec.to_builtins(flags)
    return {name: value for name, value in values.items() if value is not None}
