"""Rotary position embedding settings, whatever spelling a release uses.

Knows no tensor: it ends at the inverse frequencies. Imports nothing heavy.
"""

import math
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from pegainfer_core.weights.config import text_config
from pegainfer_core.weights.errors import ConfigError
from pegainfer_core.weights.field import bool_field, float_field, int_field, object_field

__all__ = ["RopeConfig", "rope_config"]

RopeType = Literal["default", "linear", "yarn"]
_TYPES: Final[Mapping[str, RopeType]] = {"default": "default", "linear": "linear", "yarn": "yarn"}


class RopeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How positions turn channels; every value is resolved, none is left to a default elsewhere.

    Attributes:
        rope_type: Scaling of the frequencies.
        theta: Base of the frequencies.
        rotary_dim: Channels of a head that are turned, even; the rest passes through.
        factor: Context extension of `linear` and `yarn`; 1 otherwise.
        original_max_position_embeddings: Context in tokens before the extension (yarn).
        beta_fast: Turns over the original context above which a frequency is kept (yarn).
        beta_slow: Turns below which a frequency is divided by `factor` (yarn).
        truncate: Round the borders of the yarn ramp to whole channels.
        attention_factor: Multiplies both cos and sin.
        mscale_all_dim: Yarn's softmax correction of MLA models; 0 when there is none.
    """

    rope_type: RopeType
    theta: float
    rotary_dim: int
    factor: float = 1.0
    original_max_position_embeddings: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    mscale_all_dim: float = 0.0

    @property
    def mla_softmax_multiplier(self) -> float:
        """What an MLA model's softmax scale (qk head dim ^ -0.5) is multiplied by.

        `attention_factor` is a separate correction: the two never replace each other.
        """
        return _yarn_mscale(self.factor, self.mscale_all_dim) ** 2

    def context_tokens(self, stated: int) -> int:
        """The context that positions are scaled for.

        `max_position_embeddings` of a YaRN release still counts the context before the extension,
        so the original context times the factor is what holds (vLLM's rule).

        Args:
            stated: `max_position_embeddings`, in tokens.
        """
        base = self.original_max_position_embeddings if self.rope_type == "yarn" else stated
        return int(base * self.factor)

    def inverse_frequencies(self) -> tuple[float, ...]:
        """Angle in radians per position for each of the `rotary_dim / 2` channel pairs.

        Float64. Multiply by the position in float32 or wider, and round only cos and sin: bfloat16
        holds positions exactly only up to 256. YaRN: Peng et al., arXiv:2309.00071.
        """
        half = self.rotary_dim // 2
        plain = [self.theta ** (-2 * i / self.rotary_dim) for i in range(half)]
        if self.rope_type != "yarn":
            return tuple(frequency / self.factor for frequency in plain)
        low, high = self._yarn_ramp()
        ramp = [min(max((i - low) / (high - low), 0.0), 1.0) for i in range(half)]
        return tuple(
            frequency * ((1.0 - share) + share / self.factor)
            for frequency, share in zip(plain, ramp, strict=True)
        )

    def _yarn_ramp(self) -> tuple[float, float]:
        def channel(turns: float) -> float:
            wavelength = self.original_max_position_embeddings / (turns * 2 * math.pi)
            return self.rotary_dim * math.log(wavelength) / (2 * math.log(self.theta))

        low, high = channel(self.beta_fast), channel(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.rotary_dim - 1)
        return low, high + 0.001 if low == high else high


def rope_config(
    config: Mapping[str, object],
    head_dim: int,
    *,
    default_theta: float = 10_000.0,
    default_partial_rotary_factor: float = 1.0,
) -> RopeConfig:
    """Read the RoPE settings of a config.

    They may stand in `rope_parameters` or in `rope_scaling` (with `rope_type` or the older `type`),
    and `rope_theta`, `partial_rotary_factor` and `original_max_position_embeddings` also beside
    them; all of it at the top level or in `text_config`. A key inside the object wins over the same
    key beside it, that one over the family's default; `rope_type` wins over `type`.

    Args:
        config: Parsed config.json.
        head_dim: Width of a head in channels; for MLA the width of its rotary part.
        default_theta: The family's base when the config names none.
        default_partial_rotary_factor: The family's turned share of a head, likewise.

    Raises:
        ConfigError: A value is out of range, the type is not supported, or `rope_parameters` and
            `rope_scaling` are both there and differ.
    """
    flat = text_config(config)
    where, params = _rope_object(flat)
    beside = {**flat, **{key: value for key, value in params.items() if value is not None}}
    rope_type = _rope_type(where, params)
    theta = float_field(beside, "rope_theta", default=default_theta, minimum=1.0)
    share = float_field(beside, "partial_rotary_factor", default=default_partial_rotary_factor)
    rotary_dim = int(head_dim * share)
    if theta == 1.0 or share > 1.0 or rotary_dim < 2 or rotary_dim % 2:
        raise ConfigError(
            f"config.json: rope_theta {theta:g} with partial_rotary_factor {share:g} of head_dim "
            f"{head_dim} turns {rotary_dim} channels; expected theta > 1 and an even number of "
            "channels within the head"
        )
    if rope_type == "default":
        return RopeConfig(rope_type=rope_type, theta=theta, rotary_dim=rotary_dim)
    if rope_type == "linear":
        factor = float_field(params, "factor", minimum=1.0, where=where)
        return RopeConfig(rope_type=rope_type, theta=theta, rotary_dim=rotary_dim, factor=factor)
    return _yarn(where, params, beside, theta, rotary_dim)


def _rope_object(flat: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """The object with the settings and its name for messages."""
    found = {
        key: object_field(flat, key)
        for key in ("rope_parameters", "rope_scaling")
        if object_field(flat, key)
    }
    if not found:
        return "config.json", {}
    (key, params), *others = found.items()
    if any(_modern(other) != _modern(params) for _, other in others):
        raise ConfigError(
            "config.json: rope_parameters and rope_scaling are both given and differ; "
            "keep the one that holds"
        )
    if all(isinstance(value, dict) for value in params.values()):
        raise ConfigError(
            f"config.json: {key} is given per layer type ({', '.join(params)}), which is not "
            "supported for this model"
        )
    return f"config.json: {key}", params


def _modern(params: Mapping[str, object]) -> dict[str, object]:
    """With `type` spelled as `rope_type`."""
    rest = {key: value for key, value in params.items() if key != "type"}
    return {"rope_type": params.get("type"), **rest}


def _rope_type(where: str, params: Mapping[str, object]) -> RopeType:
    value = params.get("rope_type") or params.get("type") or "default"
    if not isinstance(value, str) or value not in _TYPES:
        raise ConfigError(
            f"{where}: rope_type is {value!r}; supported are {', '.join(sorted(_TYPES))}"
        )
    return _TYPES[value]


def _yarn(
    where: str,
    params: Mapping[str, object],
    beside: Mapping[str, object],
    theta: float,
    rotary_dim: int,
) -> RopeConfig:
    context_tokens = _context_tokens(beside)
    original = int_field(
        beside, "original_max_position_embeddings", default=context_tokens, where=where
    )
    implied = _extension(context_tokens, original)
    factor = float_field(params, "factor", default=implied, minimum=1.0, where=where)
    # Zero means "not given", as null does.
    beta_fast = float_field(params, "beta_fast", default=32.0, where=where) or 32.0
    beta_slow = float_field(params, "beta_slow", default=1.0, where=where) or 1.0
    mscale = float_field(params, "mscale", default=0.0, where=where)
    mscale_all_dim = float_field(params, "mscale_all_dim", default=0.0, where=where)
    inferred = _yarn_mscale(factor, 1.0)
    if mscale and mscale_all_dim:
        inferred = _yarn_mscale(factor, mscale) / _yarn_mscale(factor, mscale_all_dim)
    if beta_fast < beta_slow:
        raise ConfigError(
            f"{where}: beta_fast is {beta_fast:g} and beta_slow {beta_slow:g}; "
            "expected beta_fast >= beta_slow"
        )
    return RopeConfig(
        rope_type="yarn",
        theta=theta,
        rotary_dim=rotary_dim,
        factor=factor,
        original_max_position_embeddings=original,
        beta_fast=beta_fast,
        beta_slow=beta_slow,
        truncate=bool_field(params, "truncate", default=True, where=where),
        attention_factor=float_field(
            params, "attention_factor", default=inferred, minimum=1e-6, where=where
        ),
        mscale_all_dim=mscale_all_dim,
    )


def _context_tokens(beside: Mapping[str, object]) -> int | None:
    if beside.get("max_position_embeddings") is None:
        return None
    return int_field(beside, "max_position_embeddings")


def _extension(context_tokens: int | None, original: int) -> float | None:
    """The factor implied by the two context lengths, when they say one."""
    if context_tokens is None or context_tokens <= original:
        return None
    return context_tokens / original


def _yarn_mscale(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1.0 else 1.0
