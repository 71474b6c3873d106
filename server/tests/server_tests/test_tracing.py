"""Traces: one span a request with its phases below it, for clients' own traces to go on in."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

import pegainfer_server
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pegainfer_server.trace_export import TraceExport
from pegainfer_server.tracing import Tracing

from pegainfer_core.plugin import CommandFault

from .raw_http import RawConnection
from .scripted_engine import chain
from .served import Server, serving

COMPLETIONS = "/v1/completions"
TRACE, PARENT = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
SAMPLED, UNSAMPLED = (f"00-{TRACE:032x}-{PARENT:016x}-0{flag}" for flag in (1, 0))


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, spans: InMemorySpanExporter
) -> Iterator[Server]:
    tracing = Tracing(SimpleSpanProcessor(spans))
    with serving(tmp_path_factory.mktemp("model"), tracing=tracing) as server:
        yield server
    tracing.close()


@pytest.fixture(autouse=True)
def fresh(spans: InMemorySpanExporter, server: Server) -> None:
    server.script.table = chain("@", "a", "b", 256)
    spans.clear()


def finished(server: Server, spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """Spans by name, once the request's own has come."""
    server.wait_for(lambda: any(span.kind.name == "SERVER" for span in spans.get_finished_spans()))
    return {span.name: span for span in spans.get_finished_spans()}


def test_a_request_and_its_phases(server: Server, spans: InMemorySpanExporter) -> None:
    server.script.cached_tokens = 1
    body = {"prompt": "x@", "max_tokens": 9, "temperature": 0.5, "top_k": 4, "seed": 7}
    headers = {"traceparent": SAMPLED, "x-request-id": "r1"}
    assert server.post(COMPLETIONS, body, headers=headers).status_code == 200
    found = finished(server, spans)
    assert set(found) == {"text_completion m", "queue", "prefill", "decode"}
    request = found["text_completion m"]
    assert request.context.trace_id == TRACE
    assert request.parent is not None
    assert request.parent.span_id == PARENT
    assert dict(request.attributes or {}) | {"gen_ai.response.time_to_first_chunk": 0} == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "http.route": COMPLETIONS,
        "url.path": COMPLETIONS,
        "url.scheme": "http",
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "pegainfer",
        "gen_ai.request.model": "m",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stream": False,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_k": 4,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.model": "m",
        "gen_ai.response.time_to_first_chunk": 0,
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 1,
        "gen_ai.usage.output_tokens": 3,
        "pegainfer.model.family": "script",
        "pegainfer.request.id": "r1",
    }
    phases = [found[name] for name in ("queue", "prefill", "decode")]
    for before, after in itertools.pairwise(phases):
        assert before.end_time == after.start_time
    for phase in phases:
        assert phase.parent is not None
        assert phase.parent.span_id == request.context.span_id
        assert request.start_time <= phase.start_time <= phase.end_time <= request.end_time
    assert request.resource.attributes["service.name"] == "pegainfer"


def test_chats_refusals_and_what_is_not_sampled(
    server: Server, spans: InMemorySpanExporter
) -> None:
    messages = [{"role": "user", "content": "secret words"}]
    server.events("/v1/chat/completions", messages=messages)
    found = finished(server, spans)
    assert {"chat m", "queue", "prefill", "decode"} == set(found)
    assert all("secret" not in str(dict(span.attributes or {})) for span in found.values())
    spans.clear()
    assert server.post(COMPLETIONS, {"prompt": 1}).status_code == 400
    (refused,) = finished(server, spans).values()
    assert refused.name == "POST"
    assert (refused.attributes or {})["http.response.status_code"] == 400
    assert refused.status.is_unset
    spans.clear()
    server.get("/health")
    headers = {"traceparent": UNSAMPLED}
    assert server.post(COMPLETIONS, {"prompt": "@"}, headers=headers).status_code == 200
    headers = {"traceparent": "00-nonsense"}
    assert server.post(COMPLETIONS, {"prompt": "@"}, headers=headers).status_code == 200
    assert set(finished(server, spans)) == {"text_completion m", "queue", "prefill", "decode"}
    assert len(spans.get_finished_spans()) == 4


def test_samples_have_phases_of_their_own(server: Server, spans: InMemorySpanExporter) -> None:
    body = {"prompt": ["x@", "@"], "n": 2, "temperature": 1}
    assert server.post(COMPLETIONS, body).status_code == 200
    attributes = finished(server, spans)["text_completion m"].attributes or {}
    assert attributes["gen_ai.usage.input_tokens"] == 3
    assert attributes["gen_ai.usage.output_tokens"] == 4 * 3
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",) * 4
    names = [span.name for span in spans.get_finished_spans()]
    assert [names.count(name) for name in ("queue", "prefill", "decode")] == [4, 4, 4]


def test_a_client_that_leaves(server: Server, spans: InMemorySpanExporter) -> None:
    server.script.hold_prefill = True
    with RawConnection(server.address) as connection:
        connection.post(COMPLETIONS, {"prompt": "@"})
        server.wait_for(lambda: server.metric("num_requests_waiting") == 1)
    found = finished(server, spans)
    server.script.hold_prefill = False
    assert set(found) == {"text_completion m", "queue"}
    attributes = found["text_completion m"].attributes or {}
    assert attributes["http.response.status_code"] == 499
    assert attributes["gen_ai.response.finish_reasons"] == ("abort",)


def test_where_traces_go(caplog: pytest.LogCaptureFixture) -> None:
    def resolve(flag: str | None = None, **environ: str) -> str | None:
        export = TraceExport.resolve(flag, environ)
        return None if export is None else (export.endpoint or "environment")

    assert resolve() is None
    assert resolve("http://c:4318/") == resolve("http://c:4318/v1/traces")
    assert resolve("http://c:4318/") == "http://c:4318/v1/traces"
    assert resolve(OTEL_EXPORTER_OTLP_ENDPOINT="http://c") == "environment"
    assert resolve(OTEL_EXPORTER_OTLP_ENDPOINT="http://c", OTEL_TRACES_EXPORTER="none") is None
    assert resolve("http://c", OTEL_SDK_DISABLED="true") is None
    with pytest.raises(CommandFault, match="c:4318 is no URL"):
        resolve("c:4318")
    with pytest.raises(CommandFault, match="'grpc' is not spoken"):
        resolve("http://c", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    # Variables are often meant for others: they warn where a flag is refused.
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert resolve(**variables) is None
    assert "'grpc' is not spoken" in caplog.text


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegainfer_server.trace_export.find_spec", lambda name: None)
    with pytest.raises(CommandFault, match=r"pip install 'pegainfer-server\[otel\]'"):
        TraceExport.resolve("http://c", {})


def test_nothing_of_it_is_imported_unasked() -> None:
    """No module imports it as it is imported itself, but the one that is imported when asked."""
    heavy = ("opentelemetry", "pegainfer_server.tracing")
    found = set()
    for path in Path(pegainfer_server.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            if any(name.startswith(heavy) for name in names):
                found.add(path.name)
    assert found == {"tracing.py"}
