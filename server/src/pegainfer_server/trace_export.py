"""Whether requests are traced, and where to; OpenTelemetry is imported only if they are."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self

import msgspec

from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_server.tracing import Tracing

_PATH = "/v1/traces"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN = "http/protobuf"
_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_INSTALL = "pip install 'pegainfer-server[otel]'"

logger = logging.getLogger(__name__)


class TraceExport(msgspec.Struct, frozen=True, kw_only=True):
    """Where traces go.

    Attributes:
        endpoint: Full URL for spans; None for what the OTEL_* variables say.
    """

    endpoint: str | None = None

    @classmethod
    def resolve(cls, flag: str | None, environ: Mapping[str, str]) -> Self | None:
        """Decide from `--otlp-endpoint` and the environment; None traces nothing.

        The variables may be meant for every service of a machine, so they never stop a start.

        Raises:
            CommandFault: The flag cannot be honoured.
        """
        if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return None
        if flag is None:
            asked = any(environ.get(name) for name in _ENDPOINTS)
            if not asked or environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
                return None
        elif not flag.startswith(("http://", "https://")):
            raise CommandFault(
                f"--otlp-endpoint {flag} is no URL; give one such as http://localhost:4318"
            )
        if trouble := _trouble(environ):
            if flag is not None:
                raise CommandFault(f"--otlp-endpoint {flag}: {trouble}")
            logger.warning("no traces, although OTEL_* variables ask for them: %s", trouble)
            return None
        if flag is not None and not flag.endswith(_PATH):
            flag = flag.rstrip("/") + _PATH
        return cls(endpoint=flag)

    def open(self) -> Tracing:
        """Start to export; takes a moment, for the libraries are large."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from pegainfer_server.tracing import Tracing

        return Tracing(BatchSpanProcessor(OTLPSpanExporter(endpoint=self.endpoint)))


def _trouble(environ: Mapping[str, str]) -> str:
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), _SPOKEN)
    if protocol != _SPOKEN:
        return f"the protocol {protocol!r} is not spoken here, only {_SPOKEN}"
    if not all(_is_installed(name) for name in _NEEDED):
        return f"OpenTelemetry is not installed; {_INSTALL}"
    return ""


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
