"""A file of JSON lines: {"prompt": text or token ids, "output_tokens": optional number}."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from pegainfer_bench.dataset.request import BenchRequest
from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from pathlib import Path


class _Line(msgspec.Struct):
    prompt: Annotated[str, Meta(min_length=1)] | Annotated[list[int], Meta(min_length=1)]
    output_tokens: Annotated[int, Meta(ge=1)] | None = None


def read_custom(path: Path, count: int, output_tokens: int) -> list[BenchRequest]:
    """The first lines in their order; a file with fewer is used several times.

    Args:
        path: The file.
        count: How many.
        output_tokens: Where a line does not say.

    Raises:
        CommandFault: The file cannot be read, is empty, or a line is not of that form.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise CommandFault(f"--dataset-path {path} cannot be read: {error.strerror}") from error
    requests: list[BenchRequest] = []
    for number, line in enumerate(lines, 1):
        if line.strip() and len(requests) < count:
            requests.append(_request(path, number, line, output_tokens))
    if not requests:
        raise CommandFault(f"--dataset-path {path} holds no line")
    return [requests[index % len(requests)] for index in range(count)]


def _request(path: Path, number: int, line: bytes, output_tokens: int) -> BenchRequest:
    try:
        read = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandFault(
            f"--dataset-path {path}, line {number}: {error}; expected "
            '{"prompt": "text" or [ids], "output_tokens": 100}'
        ) from error
    return BenchRequest(prompt=read.prompt, output_tokens=read.output_tokens or output_tokens)
