"""A Qwen3 checkpoint whose next-token logits are a table indexed by the last token.

An ordinary checkpoint that any Qwen3 implementation can load; attention and MLP add nothing. For
tests of text, protocol and sampling, not of anything that depends on context.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from pegainfer_core.testing.tiny.folder import JsonObject, write_folder
from pegainfer_core.weights import FloatArray

__all__ = ["TableRow", "row", "script", "table_model"]

TableRow = Mapping[int, float]
"""Logits by token id; 0 where absent."""

Token = int | str
"""An id, or text that stands for the ids of its UTF-8 bytes."""

_VOCAB: Final = 1024
_HEAD_DIM: Final = 16
_INTERMEDIATE: Final = 16
#: sqrt of the hidden width: a one-hot row of this size has a root mean square of one.
_SCALE: Final = 32.0
_SURE: Final = 40.0


def script(start: Token, steps: Iterable[Token]) -> dict[int, dict[int, float]]:
    """Table rows that make greedy text certain: each token is followed by the next.

    Args:
        start: The last token of the prompt, such as "@".
        steps: What follows, such as `["A", 260, "Z", 256]`; a text may hold several bytes.

    Raises:
        ValueError: A token has two different followers, which one table cannot express.
    """
    tokens = [token for step in (start, *steps) for token in _ids(step)]
    rows: dict[int, dict[int, float]] = {}
    for token, follower in pairwise(tokens):
        if rows.get(token, {follower: _SURE}) != {follower: _SURE}:
            raise ValueError(f"token {token} is used twice with different followers")
        rows[token] = {follower: _SURE}
    return rows


def row(logits: Mapping[Token, float], *, others: float = 0.0) -> dict[int, float]:
    """A whole table row: the logits given, and `others` for every other token.

    Raises:
        ValueError: A text in `logits` is more than one byte.
    """
    full = dict.fromkeys(range(_VOCAB), others)
    for token, logit in logits.items():
        ids = _ids(token)
        if len(ids) != 1:
            raise ValueError(f"{token!r} is {len(ids)} tokens; a row needs single ones")
        full[ids[0]] = logit
    return full


def table_model(
    model_dir: Path,
    table: Mapping[int, TableRow],
    *,
    max_position_embeddings: int = 4096,
    eos_token_ids: Sequence[int] = (256,),
    generation_config: Mapping[str, object] | None = None,
    chat_template: str | None = None,
) -> Path:
    """Write a checkpoint folder with the byte tokenizer whose logits are `table[last token]`.

    Float32, one layer, width and vocabulary 1024, untied. The embedding is 32 times the identity,
    the projections are zero and the norms one, so that column i of the head, `table[i] / 32`, is
    what token i gets.

    Args:
        model_dir: The folder; made if missing, must hold no weights.
        table: Rows by token id, from `script`, `row`, or by hand; may be joined with `|`. A token
            without a row has equal logits.
        max_position_embeddings: Context in tokens.
        eos_token_ids: End tokens of config.json.
        generation_config: Content of generation_config.json; no such file when None.
        chat_template: Goes into tokenizer_config.json.

    Returns:
        The folder.

    Raises:
        ConfigError: The folder already holds weights.
    """
    config: JsonObject = {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "dtype": "float32",
        "eos_token_id": eos_token_ids[0] if len(eos_token_ids) == 1 else list(eos_token_ids),
        "head_dim": _HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": _VOCAB,
        "intermediate_size": _INTERMEDIATE,
        "max_position_embeddings": max_position_embeddings,
        "model_type": "qwen3",
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "num_key_value_heads": 1,
        # Against a mean square of one this vanishes in float32: logits are the table's.
        "rms_norm_eps": 1e-9,
        "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"},
        "tie_word_embeddings": False,
        "vocab_size": _VOCAB,
    }
    return write_folder(
        model_dir,
        config,
        _tensors(table),
        dtype="float32",
        num_shards=1,
        generation_config=generation_config,
        chat_template=chat_template,
    )


def _tensors(table: Mapping[int, TableRow]) -> dict[str, FloatArray]:
    head = np.zeros((_VOCAB, _VOCAB), np.float32)
    for last, logits in table.items():
        head[list(logits), last] = np.array(list(logits.values()), np.float32) / _SCALE
    layer = {
        "self_attn.q_proj": (_HEAD_DIM, _VOCAB),
        "self_attn.k_proj": (_HEAD_DIM, _VOCAB),
        "self_attn.v_proj": (_HEAD_DIM, _VOCAB),
        "self_attn.o_proj": (_VOCAB, _HEAD_DIM),
        "mlp.gate_proj": (_INTERMEDIATE, _VOCAB),
        "mlp.up_proj": (_INTERMEDIATE, _VOCAB),
        "mlp.down_proj": (_VOCAB, _INTERMEDIATE),
    }
    norms = {
        "input_layernorm": _VOCAB,
        "post_attention_layernorm": _VOCAB,
        "self_attn.q_norm": _HEAD_DIM,
        "self_attn.k_norm": _HEAD_DIM,
    }
    prefix = "model.layers.0."
    return {
        "model.embed_tokens.weight": _SCALE * np.eye(_VOCAB, dtype=np.float32),
        **{f"{prefix}{name}.weight": np.zeros(s, np.float32) for name, s in layer.items()},
        **{f"{prefix}{name}.weight": np.ones(size, np.float32) for name, size in norms.items()},
        "model.norm.weight": np.ones(_VOCAB, np.float32),
        "lm_head.weight": head,
    }


def _ids(token: Token) -> list[int]:
    return [token] if isinstance(token, int) else list(token.encode())
