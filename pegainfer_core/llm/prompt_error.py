"""What the offline API raises when some prompts cannot be served."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.llm.request_output import RequestOutput


class PromptError(ValueError):
    """A prompt, or its parameters, cannot be served; the message names its index.

    Attributes:
        index: Place of the (first) bad prompt in what was given.
        problem: What is wrong with it.
        outputs: Answers of the others, None where there is none; empty when the fault was found
            before anything ran.
    """

    def __init__(
        self, index: int, problem: str, outputs: Sequence[RequestOutput | None] = ()
    ) -> None:
        super().__init__(f"prompt {index}: {problem}")
        self.index = index
        self.problem = problem
        self.outputs = list(outputs)
