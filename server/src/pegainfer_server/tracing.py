"""Traces of requests: a span each, with children for queue, prefill and decode.

Imported only when traces are asked for. Spans are made when things have ended, from the times that
are taken anyway; nothing of a prompt or an answer gets into them.
"""

from __future__ import annotations

import os
import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pegainfer_core import __version__
from pegainfer_server.request_id import request_id

if TYPE_CHECKING:
    from litestar.types import HTTPScope
    from opentelemetry.sdk.trace import SpanProcessor

    from pegainfer_core.plugin import RequestRecord
    from pegainfer_server.job import Job

_CLOSE_S = 3.0
_CARRIED = (b"traceparent", b"tracestate")
_TEXT_COMPLETION = "/v1/completions"

Attributes = dict[str, str | int | float | bool | list[str]]


class Tracing:
    """Makes spans and hands them to a processor."""

    def __init__(self, processor: SpanProcessor) -> None:
        named = "OTEL_SERVICE_NAME" in os.environ or (
            "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        )
        facts = {SERVICE_VERSION: __version__} | ({} if named else {SERVICE_NAME: "pegainfer"})
        # At exit it would wait for a collector that is gone for as long as it liked.
        self._provider = TracerProvider(resource=Resource.create(facts), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("pegainfer", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._current: ContextVar[RequestTrace | None] = ContextVar("trace", default=None)

    def begin(self, scope: HTTPScope, headers: dict[bytes, bytes]) -> RequestTrace:
        """Begin the trace of a request, or go on with its client's; belongs to this task."""
        carrier = {
            name.decode(): headers[name].decode("latin-1") for name in _CARRIED if name in headers
        }
        span = self._tracer.start_span(
            scope["method"],  # A path can be anything; a known one becomes the name later.
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            start_time=time.time_ns(),
            attributes={
                "http.request.method": scope["method"],
                "url.path": scope["path"],
                "url.scheme": scope["scheme"],
            },
        )
        trace = RequestTrace(span, self._tracer, scope)
        self._current.set(trace)
        return trace

    def generation_ended(self, job: Job, record: RequestRecord) -> None:
        """Add a generation to the trace of the request that this task serves."""
        trace = self._current.get()
        if trace is not None:
            trace.add(job, record)

    def close(self) -> None:
        """Send what is left; a collector that does not answer is not waited for."""
        thread = threading.Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        thread.join(_CLOSE_S)


class RequestTrace:
    """One request's span, and what its generations add."""

    def __init__(self, span: Span, tracer: Tracer, scope: HTTPScope) -> None:
        self._span = span
        self._tracer = tracer
        self._scope = scope
        self._context = set_span_in_context(span)
        self._records: list[RequestRecord] = []
        self._prompt_tokens = self._cached_tokens = 0

    def add(self, job: Job, record: RequestRecord) -> None:
        """Take an ended generation: its phases become spans."""
        if not self._records:
            self._describe(job, record)
        self._records.append(record)
        if job.sample_index == 0:  # Samples share the prompt of the first one.
            self._prompt_tokens += record.prompt_tokens
            self._cached_tokens += record.cached_tokens
        if not self._span.is_recording():
            return
        scheduled_s, first_s, end_s = record.scheduled_s, record.first_token_s, record.finished_s
        self._phase("queue", record, 0.0, end_s if scheduled_s is None else scheduled_s)
        if scheduled_s is not None:
            facts: Attributes = {
                "gen_ai.usage.input_tokens": record.prompt_tokens,
                "gen_ai.usage.cache_read.input_tokens": record.cached_tokens,
            }
            self._phase(
                "prefill", record, scheduled_s, end_s if first_s is None else first_s, facts
            )
        if first_s is not None:
            facts = {"gen_ai.usage.output_tokens": record.completion_tokens}
            self._phase("decode", record, first_s, end_s, facts)

    def end(self, status: int) -> None:
        """End the span.

        Args:
            status: Of the response; 499 when the client had gone.
        """
        span = self._span
        span.set_attribute("http.response.status_code", status)
        span.set_attribute("pegainfer.request.id", request_id(self._scope))
        records = self._records
        if records:
            span.set_attributes(
                {
                    "gen_ai.response.finish_reasons": [each.finish_reason for each in records],
                    "gen_ai.usage.input_tokens": self._prompt_tokens,
                    "gen_ai.usage.cache_read.input_tokens": self._cached_tokens,
                    "gen_ai.usage.output_tokens": sum(each.completion_tokens for each in records),
                }
            )
            waits_s = [each.first_token_s for each in records if each.first_token_s is not None]
            if waits_s:
                span.set_attribute("gen_ai.response.time_to_first_chunk", min(waits_s))
        failed = next((each for each in records if each.finish_reason == "error"), None)
        if status >= 500 or failed is not None:
            span.set_attribute("error.type", str(status) if status >= 500 else "engine_error")
            span.set_status(Status(StatusCode.ERROR, failed.detail if failed else None))
        span.end()

    def _describe(self, job: Job, record: RequestRecord) -> None:
        chat = job.endpoint != _TEXT_COMPLETION
        operation = "chat" if chat else "text_completion"
        self._span.update_name(f"{operation} {record.model}")
        params = job.params
        facts: Attributes = {
            "http.route": job.endpoint,
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "pegainfer",
            "gen_ai.request.model": record.model,
            "gen_ai.response.model": record.model,
            "gen_ai.request.stream": job.stream,
            "gen_ai.request.temperature": params.temperature,
            "gen_ai.request.top_p": params.top_p,
            "pegainfer.model.family": record.family,
        }
        if params.top_k > 0:
            facts["gen_ai.request.top_k"] = params.top_k
        if params.max_tokens is not None:
            facts["gen_ai.request.max_tokens"] = params.max_tokens
        if params.seed is not None:
            facts["gen_ai.request.seed"] = params.seed
        self._span.set_attributes(facts)

    def _phase(
        self,
        name: str,
        record: RequestRecord,
        start_s: float,
        end_s: float,
        facts: Attributes | None = None,
    ) -> None:
        """A span that lies behind us; times are seconds after the generation's arrival."""
        span = self._tracer.start_span(
            name,
            context=self._context,
            start_time=_nanoseconds(record.arrival_unix_s + start_s),
            attributes={"pegainfer.engine.request_id": record.request_id, **(facts or {})},
        )
        span.end(_nanoseconds(record.arrival_unix_s + max(end_s, start_s)))


def _nanoseconds(unix_s: float) -> int:
    return int(unix_s * 1e9)
