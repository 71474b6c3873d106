"""Makes the requests that flags ask for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from pegainfer_bench.dataset.custom import read_custom
from pegainfer_bench.dataset.random_prompts import RandomPrompts
from pegainfer_bench.dataset.sharegpt import draw_sharegpt
from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    import random

    from pegainfer_bench.dataset.request import BenchRequest
    from pegainfer_core.text import Tokenizer


class DatasetChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset by its flags.

    Attributes:
        name: Its kind.
        path: Its file, for all but random prompts.
        random_prompts: What random prompts look like.
        sharegpt_output_tokens: Tokens to generate for a conversation; None as many as its answer.
        custom_output_tokens: Tokens to generate where a line does not say.
    """

    name: Literal["random", "sharegpt", "custom"]
    path: str | None
    random_prompts: RandomPrompts
    sharegpt_output_tokens: int | None
    custom_output_tokens: int

    def draw(
        self, count: int, rng: random.Random, seed: int, tokenizer: Tokenizer | None
    ) -> list[BenchRequest]:
        """Draw requests; equal arguments give equal requests.

        Raises:
            CommandFault: The file is missing or unusable, or flags are at odds.
        """
        if self.name == "random":
            if self.path is not None:
                raise CommandFault(
                    f"--dataset-path {self.path} needs --dataset-name sharegpt or custom"
                )
            return self.random_prompts.draw(count, rng, seed)
        if self.path is None:
            raise CommandFault(f"--dataset-name {self.name} needs --dataset-path FILE")
        path = Path(self.path)
        if self.name == "custom":
            return read_custom(path, count, self.custom_output_tokens)
        if tokenizer is None and self.sharegpt_output_tokens is None:
            raise CommandFault(
                "--dataset-name sharegpt needs --tokenizer DIR to count the answers' tokens, or "
                "--sharegpt-output-len N to ask for N each"
            )
        return draw_sharegpt(
            path, count, rng, tokenizer=tokenizer, output_tokens=self.sharegpt_output_tokens
        )
