# mypy: ignore-errors
# The functions below are Triton, which only looks like Python.
"""Masks, bias and penalties of rows that have them, in the order of `sampling.rules`.

A history holds a word an id: 1 if the prompt has it, plus 2 for each time it was generated. No
product and sum may be contracted: results have the host's bits.
"""

import triton
import triton.language as tl

from pegainfer_core.kernels.src.choice_values import (
    ALLOWED,
    BIASES,
    FREQUENCY,
    HISTORY,
    MASKS,
    NEGATIVE,
    NUM_BIASES,
    NUM_MASKS,
    PRESENCE,
    REPETITION,
    SLOT,
    SOURCE,
    real_word,
    wide_word,
)


@triton.jit
def _allowed(values, words, ids, mask):
    """-inf for ids whose bit is not set, where there are such bits."""
    address = wide_word(words, ALLOWED)
    if address != 0:
        bits = tl.load(address.to(tl.pointer_type(tl.int32)) + (ids >> 5), mask=mask, other=0)
        values = tl.where(((bits >> (ids & 31)) & 1) != 0, values, NEGATIVE)
    return values


@triton.jit
def _penalised(values, words, ids, mask):
    address = wide_word(words, HISTORY)
    if address != 0:
        seen = tl.load(address.to(tl.pointer_type(tl.int32)) + ids, mask=mask, other=0)
        penalty = real_word(words, REPETITION)
        repeated = tl.where(values > 0, tl.div_rn(values, penalty + tl.zeros_like(values)),
                            values * penalty)  # fmt: skip
        changed = tl.where(penalty != 1.0, repeated, values)
        counts = seen >> 1
        changed = changed - real_word(words, FREQUENCY) * counts.to(tl.float32)
        changed = changed - real_word(words, PRESENCE) * (counts > 0).to(tl.float32)
        values = tl.where(seen != 0, changed, values)
    return values


@triton.jit
def apply_rules(
    logits, words, next_ids, vocab, part_width, BLOCK: tl.constexpr, ENTRIES: tl.constexpr,
    WORDS: tl.constexpr,
):  # fmt: skip
    """Write the changed logits of a part of a row to the row's own copy; grid (rows, parts)."""
    row, part = tl.program_id(0), tl.program_id(1)
    words += row * WORDS
    address = wide_word(words, SOURCE)
    if address != 0:
        source = logits + row.to(tl.int64) * vocab
        target = address.to(tl.pointer_type(tl.float32))
        begin = part * part_width
        end = tl.minimum(begin + part_width, vocab)
        for start in range(begin, end, BLOCK):
            ids = start + tl.arange(0, BLOCK)
            mask = ids < end
            values = _allowed(tl.load(source + ids, mask=mask, other=0.0), words, ids, mask)
            tl.store(target + ids, _penalised(values, words, ids, mask), mask=mask)
        tl.debug_barrier()
        _bias_part(source, target, words, begin, end, ENTRIES)
        tl.debug_barrier()
        _mask_part(target, words, next_ids, begin, end, ENTRIES)


@triton.jit
def _bias_part(source, target, words, begin, end, ENTRIES: tl.constexpr):
    """Do ids with a bias again, from their raw logits; entries are (id, addend)."""
    biases = wide_word(words, BIASES).to(tl.pointer_type(tl.int32))
    count = tl.load(words + NUM_BIASES)
    for first in range(0, count, ENTRIES):
        entry = first + tl.arange(0, ENTRIES)
        ids = tl.load(biases + 2 * entry, mask=entry < count, other=-1)
        mask = (ids >= begin) & (ids < end)
        addends = tl.load(biases + 2 * entry + 1, mask=mask, other=0).to(tl.float32, bitcast=True)
        values = _allowed(tl.load(source + ids, mask=mask, other=0.0), words, ids, mask)
        tl.store(target + ids, _penalised(values + addends, words, ids, mask), mask=mask)


@triton.jit
def _mask_part(target, words, next_ids, begin, end, ENTRIES: tl.constexpr):
    """Mask ids; entries are (id, the slot's newest id at which it is masked, or -1)."""
    masks = wide_word(words, MASKS).to(tl.pointer_type(tl.int32))
    count = tl.load(words + NUM_MASKS)
    slot = tl.load(words + SLOT)
    newest = tl.load(next_ids + slot - 1, mask=slot > 0, other=-1)
    for first in range(0, count, ENTRIES):
        entry = first + tl.arange(0, ENTRIES)
        ids = tl.load(masks + 2 * entry, mask=entry < count, other=-1)
        mask = (ids >= begin) & (ids < end)
        needed = tl.load(masks + 2 * entry + 1, mask=mask, other=-1)
        mask = mask & ((needed < 0) | (needed == newest))
        tl.store(target + ids, tl.full([ENTRIES], NEGATIVE, tl.float32), mask=mask)


@triton.jit
def count_tokens(history, token_ids, num_prompt, num_tokens, BLOCK: tl.constexpr):
    """Take the tokens of a sequence into a cleared history; grid (cdiv(num_tokens, BLOCK),)."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < num_tokens
    ids = tl.load(token_ids + place, mask=mask, other=0)
    prompt = place < num_prompt
    one = tl.full([BLOCK], 1, tl.int32)
    tl.atomic_or(history + ids, one, mask=mask & prompt)
    tl.atomic_add(history + ids, one + 1, mask=mask & (place >= num_prompt))
