"""Everything that requests need of the one model being served."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pegainfer_core.text import (
    ChatTemplate,
    GenerationDefaults,
    Tokenizer,
    end_token_ids,
)
from pegainfer_server.api_error import model_not_found

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pegainfer_core.contract import EngineInfo
    from pegainfer_core.engine import EngineClient
    from pegainfer_core.text import TokenizerLoader


@dataclass(frozen=True, kw_only=True)
class ModelText:
    """The text side of a checkpoint, loaded beside the engine.

    Attributes:
        tokenizer: Text to ids and back.
        chat_template: Messages to text; may be empty.
        generation: What generation_config.json says.
        end_token_ids: Ids that end an answer.
        template_defaults: The family's values for the template's variables.
    """

    tokenizer: Tokenizer
    chat_template: ChatTemplate
    generation: GenerationDefaults
    end_token_ids: frozenset[int]
    template_defaults: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def load(
        cls,
        model_dir: Path,
        config: Mapping[str, object],
        *,
        generation_config: str = "auto",
        template_defaults: Mapping[str, object] | None = None,
        loaders: Sequence[TokenizerLoader] = (),
    ) -> ModelText:
        """Read a checkpoint's files; takes up to a second for a large vocabulary.

        Raises:
            TextError: A file is missing or unusable.
        """
        tokenizer = Tokenizer.from_dir(model_dir, loaders)
        generation = GenerationDefaults.from_dir(model_dir, generation_config)
        return cls(
            tokenizer=tokenizer,
            chat_template=ChatTemplate.from_dir(model_dir),
            generation=generation,
            end_token_ids=end_token_ids(config, generation, tokenizer),
            template_defaults=dict(template_defaults or {}),
        )


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A ready engine with its text side.

    Attributes:
        names: Names requests may use; the first is the default.
        client: The engine.
        text: Tokenizer and its company.
        sampling_defaults: For requests without values of their own.
    """

    names: tuple[str, ...]
    client: EngineClient
    text: ModelText
    sampling_defaults: Mapping[str, float | int]

    @property
    def info(self) -> EngineInfo:
        """Facts about the engine."""
        return self.client.info

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.text.tokenizer

    def name_for(self, asked: str | None) -> str:
        """The name an answer carries.

        Raises:
            ApiError: 404, no model of that name.
        """
        if not asked:
            return self.names[0]
        if asked not in self.names:
            served = ", ".join(repr(name) for name in self.names)
            raise model_not_found(f"no model named {asked[:100]!r}; served here: {served}")
        return asked
