# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""Token embedding. An id that only the device knows yet is looked up in a table by slot."""

import triton
import triton.language as tl


@triton.jit
def embed_tokens(table, token_ids, newest_ids, out, width, BLOCK: tl.constexpr):
    """`out`[i] = `table`[token_ids[i]]; grid (tokens, cdiv(width, BLOCK)).

    An id below 0 stands for `newest_ids`[-1 - id]: what was chosen last for that slot.
    """
    token = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < width
    token_id = tl.load(token_ids + token)
    if token_id < 0:
        token_id = tl.load(newest_ids + (-1 - token_id))
    values = tl.load(table + token_id.to(tl.int64) * width + columns, mask=mask)
    tl.store(out + token.to(tl.int64) * width + columns, values, mask=mask)
