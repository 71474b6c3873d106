"""The text side of one checkpoint in one piece: what the server and the offline API both load.

Knows folders and parsed configs; knows no engine and no protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pegainfer_core.text.chat_template import ChatTemplate
from pegainfer_core.text.generation_config import GenerationDefaults, end_token_ids
from pegainfer_core.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pegainfer_core.text.tokenizer_loading import TokenizerLoader

__all__ = ["ModelText"]


@dataclass(frozen=True, kw_only=True)
class ModelText:
    """Tokenizer, chat template and generation defaults of a checkpoint.

    Attributes:
        tokenizer: Text to ids and back.
        chat_template: Messages to text; may be empty.
        generation: What generation_config.json says.
        end_token_ids: Ids that end an answer, the union of what every file declares.
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
        """Read a checkpoint's files; a large vocabulary takes up to a second.

        Args:
            model_dir: The checkpoint folder.
            config: Its parsed config.json.
            generation_config: As `source` of `GenerationDefaults.from_dir`.
            template_defaults: See the attribute.
            loaders: As for `Tokenizer.from_dir`.

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
