"""What the config.json of any decoder says in the same words, and how it is checked.

Knows no family: what a family does with the sizes, and what it cannot serve, it says itself.
Imports nothing heavy.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pegainfer_core.weights.config import text_config
from pegainfer_core.weights.errors import ConfigError
from pegainfer_core.weights.field import int_field

__all__ = [
    "HeadSizes",
    "attention_heads",
    "layer_count",
    "model_type",
    "require_multiple",
    "require_silu",
]

#: Far beyond any model; a slip in the file must not become minutes of work.
_MAX_LAYERS: Final = 10_000


class HeadSizes(NamedTuple):
    """Heads of grouped-query attention.

    Attributes:
        num_heads: Query heads.
        num_kv_heads: Key/value heads; divides `num_heads`.
        head_dim: Channels of a head.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int


def model_type(config: Mapping[str, object]) -> object:
    """The outer `model_type`; only a config that has none is judged by its `text_config`.

    A foreign outer type with a known text model inside is another model, with parts of its own.

    Raises:
        ConfigError: `text_config` is not an object.
    """
    outer = config.get("model_type")
    return text_config(config).get("model_type") if outer is None else outer


def layer_count(flat: Mapping[str, object]) -> int:
    """`num_hidden_layers`.

    Raises:
        ConfigError: It is missing or out of range.
    """
    return int_field(flat, "num_hidden_layers", maximum=_MAX_LAYERS)


def attention_heads(flat: Mapping[str, object]) -> HeadSizes:
    """Heads as transformers reads them: as many key/value heads as query heads unless told.

    Args:
        flat: As `text_config` makes it.

    Raises:
        ConfigError: A key is missing or out of range, or the counts do not go together.
    """
    num_heads = int_field(flat, "num_attention_heads")
    num_kv_heads = int_field(flat, "num_key_value_heads", default=num_heads)
    require_multiple("num_attention_heads", num_heads, "num_key_value_heads", num_kv_heads)
    head_dim = flat.get("head_dim")
    if head_dim is None:
        head_dim = int_field(flat, "hidden_size") // num_heads
    channels = int_field({"head_dim": head_dim}, "head_dim", minimum=2)
    return HeadSizes(num_heads, num_kv_heads, channels)


def require_multiple(key: str, value: int, divisor_key: str, divisor: int) -> None:
    """Refuse counts that do not divide.

    Raises:
        ConfigError: They do not.
    """
    if value % divisor:
        raise ConfigError(
            f"config.json: {key} {value} is not a multiple of {divisor_key} {divisor}"
        )


def require_silu(flat: Mapping[str, object], display_name: str) -> None:
    """Refuse an MLP with another activation than SiLU.

    Raises:
        ConfigError: `hidden_act` names another.
    """
    activation = flat.get("hidden_act")
    if activation not in (None, "silu"):
        raise ConfigError(
            f"config.json: hidden_act is {activation!r}; {display_name} is served with 'silu'"
        )
