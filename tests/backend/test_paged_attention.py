"""KV pages and paged attention: ragged batches over scattered pages against float64 maths."""

import copy
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pegainfer_core.backend import (
    AttentionShape,
    DType,
    KvLayout,
    KvPool,
    NumpyBackend,
    StepMetadata,
    Workspace,
)
from pegainfer_core.backend.numpy.dense_contexts import DENSE_BYTES, DenseContexts
from pegainfer_core.backend.numpy.numpy_kv_pool import NumpyKvPool
from tests.backend import naive

BACKEND = NumpyBackend()
MAX_CONTEXT = 200
FloatArray = NDArray[np.float32]


@dataclass
class Context:
    """What one sequence has written so far, densely, per layer."""

    page_ids: list[int]
    slot: int = -1
    keys: list[list[FloatArray]] = field(default_factory=lambda: [[], []])
    values: list[list[FloatArray]] = field(default_factory=lambda: [[], []])

    @property
    def length(self) -> int:
        return len(self.keys[0])

    def restart(self) -> None:
        """Its pages now belong to another sequence, which starts anew."""
        self.keys, self.values = [[], []], [[], []]

    def rewind(self, length: int) -> None:
        """They belong to one that shares its first tokens and goes on with others."""
        self.keys = [keys[:length] for keys in self.keys]
        self.values = [values[:length] for values in self.values]


class Rig:
    """A KV pool with two layers and sequences whose pages lie scattered in it."""

    def __init__(
        self,
        group: int,
        kv_heads: int,
        head_dim: int,
        page_tokens: int,
        dtype: DType,
        seed: int,
        dense_bytes: int = DENSE_BYTES,
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.shape = AttentionShape(
            num_heads=group * kv_heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            scale=head_dim**-0.5,
            norm_eps=1e-6,
        )
        self.layout = KvLayout(
            num_layers=2,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            page_tokens=page_tokens,
            dtype=dtype,
        )
        pool = BACKEND.kv_pool(self.layout, 4 * self.layout.pages_for(MAX_CONTEXT))
        contexts = DenseContexts(self.layout, stored(pool), dense_bytes)
        self.kv = NumpyKvPool(self.layout, pool.pages, contexts)
        self.free = self.random.permutation(np.arange(1, self.kv.num_pages)).tolist()
        self.workspace: Workspace = BACKEND.workspace(64, MAX_CONTEXT)
        self.poison()

    def poison(self) -> None:
        """Whatever was not written in a test must not matter, not even when it is not a number."""
        held = stored(self.kv)
        held.fill(0x7FC0 if held.dtype == np.uint16 else np.nan)

    def sequence(self, slot: int = -1) -> Context:
        count = self.layout.pages_for(MAX_CONTEXT)
        return Context([self.free.pop() for _ in range(count)], slot)

    def step(self, *work: tuple[Context, int]) -> None:
        """Write and attend for (sequence, number of tokens) rows in both layers, and check."""
        total = sum(count for _, count in work)
        dtype = self.layout.dtype
        metadata = StepMetadata(64, len(work), 400, self.layout.page_tokens)
        for context, count in work:
            metadata.add_row(
                [1] * count, context.length, context.page_ids, samples=False, slot=context.slot
            )
        metadata.finish(0)
        batch = BACKEND.upload(metadata)
        for layer in range(2):
            values = self.random.standard_normal((total, self.shape.qkv_width)).astype(np.float32)
            if dtype is DType.BFLOAT16:
                values = naive.bfloat16(values)
            qkv = BACKEND.adopt(np.ascontiguousarray(values), dtype)
            out = BACKEND.empty((64, self.shape.query_width), dtype)
            BACKEND.ops.kv_write(batch, qkv, self.shape, self.kv, layer)
            BACKEND.ops.attend(batch, qkv, self.shape, self.kv, layer, out, self.workspace)
            actual = BACKEND.to_host(out, total)
            check(actual, self._expect(list(work), values, layer), dtype)

    def _expect(
        self, work: list[tuple[Context, int]], values: FloatArray, layer: int
    ) -> FloatArray:
        heads = values.reshape(len(values), -1, self.shape.head_dim)
        queries, keys, vals = np.split(
            heads, [self.shape.num_heads, self.shape.num_heads + self.shape.num_kv_heads], axis=1
        )
        parts, first = [], 0
        for context, count in work:
            rows = slice(first, first + count)
            context.keys[layer] += list(keys[rows])
            context.values[layer] += list(vals[rows])
            parts.append(
                naive.attention(
                    queries[rows],
                    np.array(context.keys[layer]),
                    np.array(context.values[layer]),
                    self.shape.scale,
                )
            )
            first += count
        return np.concatenate(parts).reshape(len(values), -1).astype(np.float32)


def stored(kv: KvPool) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    held = kv.pages.storage
    assert isinstance(held, np.ndarray)
    return held


def check(actual: FloatArray, expected: FloatArray, dtype: DType) -> None:
    if dtype is DType.BFLOAT16:
        np.testing.assert_allclose(actual, expected, rtol=2.0**-8, atol=2e-3)
        assert not (actual.view(np.uint32) & 0xFFFF).any()
    else:
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


@settings(max_examples=40, deadline=None)
@given(
    group=st.sampled_from([1, 2, 4, 5, 8]),
    kv_heads=st.sampled_from([1, 2, 3]),
    head_dim=st.sampled_from([2, 16, 32]),
    page_tokens=st.sampled_from([16, 32, 64]),
    dtype=st.sampled_from([DType.FLOAT32, DType.BFLOAT16]),
    steps=st.lists(
        st.lists(st.sampled_from([0, 1, 1, 2, 7, 15, 16, 17]), min_size=3, max_size=3),
        min_size=1,
        max_size=6,
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_ragged_batches_resume_anywhere(
    group: int,
    kv_heads: int,
    head_dim: int,
    page_tokens: int,
    dtype: DType,
    steps: list[list[int]],
    seed: int,
) -> None:
    rig = Rig(group, kv_heads, head_dim, page_tokens, dtype, seed)
    sequences = [rig.sequence(slot) for slot in (-1, 0, 1)]
    for counts in steps:
        work = [pair for pair in zip(sequences, counts, strict=True) if pair[1]]
        if work:
            rig.step(*work)


@settings(max_examples=40, deadline=None)
@given(
    dense_bytes=st.sampled_from([0, 9_000, 20_000, DENSE_BYTES]),
    actions=st.lists(
        st.tuples(
            st.sampled_from(
                ["decode", "decode", "decode", "prefill", "restart", "rewind", "swap", "copy"]
            ),
            st.integers(0, 2),
        ),
        max_size=25,
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_dense_copies_are_never_stale(
    dense_bytes: int, actions: list[tuple[str, int]], seed: int
) -> None:
    """Sequences end and start anew on the same pages or in the same slots; memory may be short."""
    rig = Rig(2, 1, 4, 16, DType.BFLOAT16, seed, dense_bytes)
    sequences = [rig.sequence(slot) for slot in range(3)]
    rig.step(*((sequence, 14) for sequence in sequences))
    for action, index in actions:
        chosen, other = sequences[index], sequences[index - 1]
        match action:
            case "decode":
                rig.step(*((s, 1) for s in sequences if s.length < MAX_CONTEXT))
            case "prefill" if chosen.length < MAX_CONTEXT - 20:
                rig.step((other, 1), (chosen, 20))
            case "restart" if chosen.length <= 60:
                length = chosen.length
                chosen.restart()
                rig.step((chosen, length))
            case "rewind":
                chosen.rewind((chosen.length - 1) // 16 * 16)
                rig.step((chosen, 1 + 4 * index))
            case "swap":
                chosen.slot, other.slot = other.slot, chosen.slot
            case "copy":
                # Another sequence's content lands in these pages without a step.
                BACKEND.copy_pages(rig.kv, other.page_ids[:2], chosen.page_ids[:2])
                length = min(other.length, 32)
                chosen.keys = [keys[:length] for keys in other.keys]
                chosen.values = [values[:length] for values in other.values]


def decoding_pair() -> tuple[Rig, Context, Context]:
    """Two sequences of equal length with dense copies."""
    rig = Rig(2, 1, 4, 16, DType.BFLOAT16, 0)
    first, second = rig.sequence(0), rig.sequence(1)
    rig.step((first, 30), (second, 30))
    rig.step((first, 1), (second, 1))
    assert rig.kv.contexts.num_bytes
    return rig, first, second


def test_a_slot_that_changes_hands_gets_a_fresh_copy() -> None:
    rig, first, second = decoding_pair()
    first.slot, second.slot = second.slot, first.slot
    rig.step((first, 1), (second, 1))


def test_pages_that_change_hands_in_one_slot_get_a_fresh_copy() -> None:
    rig, first, second = decoding_pair()
    first.restart()
    rig.step((second, 1), (first, 31))
    rig.step((first, 1), (second, 1))


@pytest.mark.parametrize("length", [16, 25, 30])
@pytest.mark.parametrize("count", [1, 5])
def test_other_tokens_after_a_shared_prefix_are_read_anew(length: int, count: int) -> None:
    """Same slot, same pages, nothing written since: the next prompt shares the first page."""
    rig, first, second = decoding_pair()
    first.rewind(length)
    for _ in range(4):
        rig.step((first, count), (second, 1))


def test_pages_written_outside_of_a_step_get_a_fresh_copy() -> None:
    rig, first, second = decoding_pair()
    BACKEND.copy_pages(rig.kv, second.page_ids[:2], first.page_ids[:2])
    first.keys, first.values = copy.deepcopy((second.keys, second.values))
    rig.step((first, 1), (second, 1))


def test_dense_copies_stay_within_their_memory() -> None:
    rig = Rig(1, 1, 4, 16, DType.FLOAT32, 0, dense_bytes=2 * 2 * 2 * 256 * 4 * 4)
    sequences = [rig.sequence(slot) for slot in range(3)]
    rig.step(*((sequence, 3) for sequence in sequences))
    for _ in range(3):
        rig.step(*((sequence, 1) for sequence in sequences))
    assert rig.kv.contexts.num_bytes == 2 * 2 * 2 * 256 * 4 * 4


def test_long_prefills_go_through_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegainfer_core.backend.numpy.attention._MAX_SCORES", 4 * 100 * 7)
    rig = Rig(2, 2, 16, 16, DType.FLOAT32, 0)
    sequence = rig.sequence()
    rig.step((sequence, 60))
    rig.step((sequence, 60))


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_pages_hold_bits_page_first(dtype: DType) -> None:
    rig = Rig(1, 2, 4, 16, dtype, 0)
    sequence = rig.sequence()
    rig.step((sequence, 18))
    held = stored(rig.kv)
    assert held.dtype == (np.uint16 if dtype is DType.BFLOAT16 else np.float32)
    assert held.shape == (rig.kv.num_pages, 2, 2, 16, 2, 4)
    page, offset = sequence.page_ids[17 // 16], 17 % 16
    for layer in range(2):
        for plane, written in enumerate((sequence.keys[layer], sequence.values[layer])):
            bits = written[17].view(np.uint32) >> np.uint32(16)
            expected = bits if dtype is DType.BFLOAT16 else written[17]
            np.testing.assert_array_equal(held[page, layer, plane, offset], expected)


def test_clear_pages() -> None:
    rig = Rig(2, 1, 8, 16, DType.BFLOAT16, 3)
    rig.step((rig.sequence(), 40))
    BACKEND.clear_pages(rig.kv)
    assert not stored(rig.kv).any()


def test_c04_bytes_a_token() -> None:
    def token_layer_bytes(head_dim: int) -> int:
        layout = KvLayout(
            num_layers=2, num_kv_heads=2, head_dim=head_dim, page_tokens=16, dtype=DType.BFLOAT16
        )
        pool = BACKEND.kv_pool(layout, 3)
        assert stored(pool).nbytes == 4 * layout.page_bytes == 4 * 16 * layout.token_bytes
        return layout.token_layer_bytes

    assert token_layer_bytes(32) == 256
    assert token_layer_bytes(64 // 4) == 128
