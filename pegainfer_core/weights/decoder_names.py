"""Names that Hugging Face checkpoints of any decoder give to what lies around its layers."""

import re
from typing import Final

__all__ = ["EMBEDDING", "HEAD", "NORM", "unread_names"]

EMBEDDING: Final = "model.embed_tokens.weight"
NORM: Final = "model.norm.weight"
HEAD: Final = "lm_head.weight"

#: Angles that older releases saved; they follow from the config.
_ROPE_BUFFERS: Final = r"model\.(?:layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq$"


def unread_names(*other_parts: str, tied: bool) -> tuple[str, ...]:
    """Patterns of tensors that may be there and are not wanted.

    Args:
        other_parts: Patterns of what a release holds beside the text model.
        tied: Whether the head is the embedding: some checkpoints hold it twice.
    """
    return (_ROPE_BUFFERS, *other_parts, *((re.escape(HEAD),) if tied else ()))
