"""The response of `/v1/responses` around its output: ids, status, and what it echoes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import UNSET

from pegainfer_server.answer.parts import Part, PartKind
from pegainfer_server.protocol.response import (
    IncompleteDetails,
    OutputCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputText,
    ReasoningText,
    Response,
    ResponseFault,
    Status,
    SummaryText,
    response_usage,
)
from pegainfer_server.translation.responses_chat import SEALED_REASONING
from pegainfer_server.translation.responses_tools import flat_tools
from pegainfer_server.translation.sealed_reasoning import seal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import UnsetType

    from pegainfer_server.generation import Ending, Generation
    from pegainfer_server.job import Job
    from pegainfer_server.protocol.responses_request import ResponsesRequest

_STATUSES: dict[str, Status] = {"stop": "completed", "length": "incomplete"}


class ResponseFrame:
    """Makes what surrounds one answer.

    Attributes:
        summarises: Whether reasoning is shown as a summary, too.
    """

    def __init__(self, data: ResponsesRequest, job: Job) -> None:
        reasoning = data.reasoning
        self.summarises = reasoning is not None and bool(
            reasoning.summary or reasoning.generate_summary
        )
        self._in_spaces = {
            tool.chat_name: (tool.name, tool.namespace)
            for tool in flat_tools(data.tools)
            if tool.namespace
        }
        self._seals = SEALED_REASONING in (data.include or ())
        self._job = job
        self._data = data

    def ended(self, parts: Sequence[Part], generation: Generation, ending: Ending) -> Response:
        """The response of an answer that is complete, as far as it will ever be."""
        status = _STATUSES.get(ending.finish_reason, "failed")
        fault = None
        if status == "failed":
            message = f"the answer ended early: {ending.finish_reason}"
            fault = ResponseFault(code="server_error", message=message)
        return self.response(status, parts, generation, fault)

    def response(
        self,
        status: Status,
        parts: Sequence[Part] = (),
        generation: Generation | None = None,
        error: ResponseFault | None = None,
    ) -> Response:
        """The response in a state.

        Args:
            status: The state.
            parts: The answer so far; the last one shares the state.
            generation: Knows the usage, at the end.
            error: For a failed one.
        """
        data, job = self._data, self._job
        reasoning, ended = data.reasoning, status != "in_progress"
        return Response(
            id=f"resp_{job.request_id}",
            created_at=job.created,
            completed_at=int(time.time()) if status == "completed" else None,
            status=status,
            error=error,
            incomplete_details=(
                IncompleteDetails(reason="max_output_tokens") if status == "incomplete" else None
            ),
            instructions=data.instructions,
            max_output_tokens=data.max_output_tokens,
            metadata=data.metadata or {},
            model=job.model,
            output=[
                self.item(part, status if part is parts[-1] else "completed") for part in parts
            ],
            parallel_tool_calls=data.parallel_tool_calls is not False,
            reasoning={
                "effort": None if reasoning is None else reasoning.effort,
                "summary": None if reasoning is None else reasoning.summary,
            },
            temperature=job.params.temperature,
            text={"format": (data.text and data.text.format) or {"type": "text"}},
            tool_choice=data.tool_choice or "auto",
            tools=data.tools or [],
            top_p=job.params.top_p,
            usage=response_usage(generation.usage) if generation and ended else None,
        )

    def item_id(self, part: Part) -> str:
        """The id of a part's item."""
        prefix = {PartKind.REASONING: "rs", PartKind.TEXT: "msg", PartKind.CALL: "fc"}[part.kind]
        return f"{prefix}_{self._job.request_id}_{part.index}"

    def called(self, part: Part) -> tuple[str, str | UnsetType]:
        """What the client knows a called function by, and its namespace if it is in one."""
        return self._in_spaces.get(part.name, (part.name, UNSET))

    def item(self, part: Part, status: Status) -> OutputItem:
        """A part as an item; one that has just begun holds nothing yet."""
        # Items know no failure: what was made before one is incomplete.
        status = "incomplete" if status == "failed" else status
        item_id, text = self.item_id(part), part.text
        if part.kind is PartKind.CALL:
            # Calls are shown when they are complete, whatever ended the answer behind them.
            status = status if status == "in_progress" else "completed"
            name, namespace = self.called(part)
            return OutputCall(
                id=item_id,
                status=status,
                call_id=part.call_id,
                name=name,
                arguments=text,
                namespace=namespace,
            )
        if part.kind is PartKind.TEXT:
            content = [OutputText(text=text)] if text else []
            return OutputMessage(id=item_id, status=status, content=content)
        return OutputReasoning(
            id=item_id,
            status=status,
            summary=[SummaryText(text=text)] if text and self.summarises else [],
            content=[ReasoningText(text=text)] if text else [],
            encrypted_content=seal(text) if text and self._seals else None,
        )
