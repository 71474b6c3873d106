"""Conversations of a ShareGPT file: the first turn is the prompt, the second sets the length.

The file is a JSON list of objects with a list `conversations` of objects with a text `value`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pegainfer_bench.dataset.request import BenchRequest
from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from pegainfer_core.text import Tokenizer

MIN_TOKENS = 4
MAX_PROMPT_TOKENS = 1024
MAX_TOTAL_TOKENS = 2048
"""Limits on what is taken, the usual ones of this dataset."""


class _Turn(msgspec.Struct):
    value: str


class _Conversation(msgspec.Struct):
    conversations: list[_Turn]


def draw_sharegpt(
    path: Path,
    count: int,
    rng: random.Random,
    *,
    tokenizer: Tokenizer | None,
    output_tokens: int | None,
) -> list[BenchRequest]:
    """Choose conversations; fewer than asked for are used several times.

    Args:
        path: The file.
        count: How many.
        rng: Chooses.
        tokenizer: Counts tokens; None takes conversations of every length.
        output_tokens: Tokens to generate; None takes as many as the answer has.

    Raises:
        CommandFault: The file cannot be read, or nothing in it can be used.
    """
    pairs = _pairs(path)
    rng.shuffle(pairs)
    chosen: list[BenchRequest] = []
    for prompt, answer in pairs:
        request = _request(prompt, answer, tokenizer, output_tokens)
        if request is not None:
            chosen.append(request)
        if len(chosen) == count:
            return chosen
    if not chosen:
        raise CommandFault(
            f"--dataset-path {path}: none of {len(pairs)} conversations fits: prompts of "
            f"{MIN_TOKENS} to {MAX_PROMPT_TOKENS} tokens, {MAX_TOTAL_TOKENS} with the answer"
        )
    return [chosen[index % len(chosen)] for index in range(count)]


def _request(
    prompt: str, answer: str, tokenizer: Tokenizer | None, output_tokens: int | None
) -> BenchRequest | None:
    if tokenizer is None:
        assert output_tokens is not None
        return BenchRequest(prompt=prompt, output_tokens=output_tokens)
    num_prompt = len(tokenizer.encode(prompt, add_special_tokens=True))
    wanted = output_tokens or len(tokenizer.encode(answer, add_special_tokens=False))
    fits = MIN_TOKENS <= num_prompt <= MAX_PROMPT_TOKENS and wanted >= MIN_TOKENS
    if (output_tokens is None and not fits) or num_prompt + wanted > MAX_TOTAL_TOKENS:
        return None
    return BenchRequest(prompt=prompt, output_tokens=wanted) if num_prompt else None


def _pairs(path: Path) -> list[tuple[str, str]]:
    """First and second turn of every conversation that has both; the others must be few."""
    entries = _entries(path)
    pairs = list(_usable(entries))
    if not pairs:
        raise CommandFault(
            f"--dataset-path {path}: none of its {len(entries)} entries holds a list "
            "`conversations` with two texts `value`"
        )
    return pairs


def _usable(entries: list[msgspec.Raw]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        try:
            turns = msgspec.json.decode(entry, type=_Conversation).conversations
        except msgspec.DecodeError:
            # Published files hold some odd entries; they are left out, like too short ones.
            continue
        if len(turns) >= 2 and turns[0].value:
            yield turns[0].value, turns[1].value


def _entries(path: Path) -> list[msgspec.Raw]:
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[msgspec.Raw])
    except OSError as error:
        raise CommandFault(f"--dataset-path {path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandFault(f"--dataset-path {path} is no JSON list: {error}") from error
    if not entries:
        raise CommandFault(f"--dataset-path {path} holds no conversation")
    return entries
