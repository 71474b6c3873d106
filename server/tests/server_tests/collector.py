"""A collector of traces over HTTP that keeps what it is sent."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What arrived.

    Attributes:
        url: For `--otlp-endpoint`.
        received: Path and body of every request.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.received: list[tuple[str, bytes]] = []

    def spans(self) -> dict[str, str]:
        """Names of all spans, and of the service that made each."""
        found = {}
        for path, body in self.received:
            assert path == "/v1/traces"
            for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                facts = {entry.key: entry.value.string_value for entry in part.resource.attributes}
                for scope in part.scope_spans:
                    found |= {span.name: facts["service.name"] for span in scope.spans}
        return found


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """Collect until the block ends."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.received.append((self.path, body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()
