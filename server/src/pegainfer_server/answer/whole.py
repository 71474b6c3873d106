"""A whole answer, from all pieces of its choices, for each endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from pegainfer_core.text import join_deltas
from pegainfer_server.answer.logprobs_view import LogprobsView
from pegainfer_server.answer.several import total_usage
from pegainfer_server.answer.sse import encode_json
from pegainfer_server.generation import Piece
from pegainfer_server.protocol.chat import ChatChoice, ChatMessage, ChatResponse
from pegainfer_server.protocol.completion import CompletionChoice, CompletionResponse
from pegainfer_server.protocol.tools import CalledFunction, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.text import Tokenizer
    from pegainfer_server.answer.several import Choice
    from pegainfer_server.generation import Generation
    from pegainfer_server.protocol.logprobs import PromptLogprobs


def encode_completions(choices: Sequence[Choice], tokenizer: Tokenizer) -> bytes:
    """The body of `/v1/completions`."""
    job = choices[0].generation.job
    response = CompletionResponse(
        id=f"cmpl-{job.request_id}",
        object="text_completion",
        created=job.created,
        model=job.model,
        system_fingerprint=None,
        choices=[_completion(choice, tokenizer) for choice in choices],
        usage=total_usage([choice.generation for choice in choices]),
    )
    return encode_json(response)


def encode_chats(choices: Sequence[Choice], tokenizer: Tokenizer) -> bytes:
    """The body of `/v1/chat/completions`."""
    generation = choices[0].generation
    job = generation.job
    response = ChatResponse(
        id=f"chatcmpl-{job.request_id}",
        object="chat.completion",
        created=job.created,
        model=job.model,
        system_fingerprint=None,
        choices=[_chat(choice, tokenizer) for choice in choices],
        usage=total_usage([choice.generation for choice in choices]),
        prompt_token_ids=job.prompt_token_ids if job.return_token_ids else UNSET,
        prompt_logprobs=_prompt_logprobs(generation, tokenizer) or UNSET,
    )
    return encode_json(response)


def _completion(choice: Choice, tokenizer: Tokenizer) -> CompletionChoice:
    generation, pieces, ending = choice
    job = generation.job
    whole = _join(pieces)
    return CompletionChoice(
        index=job.index,
        text=whole.text,
        logprobs=None if job.logprobs is None else _view(generation, tokenizer).completion(whole),
        finish_reason=ending.finish_reason,
        stop_reason=ending.stop_reason,
        prompt_token_ids=job.prompt_token_ids if job.return_token_ids else UNSET,
        token_ids=_new_token_ids(pieces) if job.return_token_ids else UNSET,
        prompt_logprobs=_prompt_logprobs(generation, tokenizer) or UNSET,
    )


def _chat(choice: Choice, tokenizer: Tokenizer) -> ChatChoice:
    generation, pieces, ending = choice
    job = generation.job
    whole = _join(pieces)
    return ChatChoice(
        index=job.index,
        message=_message(whole, pieces),
        logprobs=None if job.logprobs is None else _view(generation, tokenizer).chat(whole),
        finish_reason=ending.chat_reason,
        stop_reason=ending.stop_reason,
        token_ids=_new_token_ids(pieces) if job.return_token_ids else UNSET,
    )


def _message(whole: Piece, pieces: Sequence[Piece]) -> ChatMessage:
    """Content is null where there is something else instead."""
    answers = [piece.answer for piece in pieces if piece.answer is not None]
    if not answers:
        return ChatMessage(role="assistant", content=whole.text)
    answer = join_deltas(answers)
    calls = [
        ToolCall(
            id=call.id or "",
            type="function",
            function=CalledFunction(name=call.name or "", arguments=call.arguments),
        )
        for call in answer.tool_calls
    ]
    return ChatMessage(
        role="assistant",
        content=answer.content or (None if answer else ""),
        reasoning_content=answer.reasoning or None,
        reasoning=answer.reasoning or None,
        tool_calls=calls or None,
    )


def _join(pieces: Sequence[Piece]) -> Piece:
    return Piece(
        "".join(piece.text for piece in pieces),
        [token_id for piece in pieces for token_id in piece.token_ids],
        [entry for piece in pieces for entry in piece.logprobs or ()],
        [offset for piece in pieces for offset in piece.text_offsets],
    )


def _new_token_ids(pieces: Sequence[Piece]) -> list[int]:
    return [token_id for piece in pieces for token_id in piece.new_token_ids]


def _view(generation: Generation, tokenizer: Tokenizer) -> LogprobsView:
    job = generation.job
    return LogprobsView(tokenizer, job.logprobs or 0, tokens_as_ids=job.tokens_as_ids)


def _prompt_logprobs(generation: Generation, tokenizer: Tokenizer) -> PromptLogprobs | None:
    job = generation.job
    if job.prompt_logprobs is None or generation.prompt_logprobs is None:
        return None
    view = LogprobsView(tokenizer, job.prompt_logprobs, tokens_as_ids=job.tokens_as_ids)
    return view.prompt(job.prompt_token_ids, generation.prompt_logprobs)
