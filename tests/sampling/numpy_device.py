"""A choice device in NumPy: its memory and its rules are read from words and tables alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.sampling import choice_words as place
from pegainfer_core.sampling.sampler import NO_TOKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pegainfer_core.backend import Batch, Tensor
    from pegainfer_core.sampling.choice_device import DeviceTable

    IntArray = NDArray[np.int32]
    FloatArray = NDArray[np.float32]

MAX_TOP = 32


@dataclass(frozen=True)
class Table:
    address: int
    num_bytes: int


@dataclass
class Results:
    ids: IntArray
    reports: IntArray

    def wait(self) -> tuple[IntArray, IntArray]:
        return self.ids, self.reports


class NumpyDevice:
    """Implements `ChoiceDevice`; `apply_rules` is what its kernel would do."""

    num_words = 32
    max_top = MAX_TOP

    def __init__(self, vocab_size: int, num_slots: int = 4, num_ids: int | None = None) -> None:
        self.vocab_size = vocab_size
        self.num_ids = vocab_size if num_ids is None else num_ids
        self.num_slots = num_slots
        self.memory = np.full(1 << 20, 0x5A5A5A5A, np.int32)
        self.newest = np.zeros(num_slots, np.int32)
        self.next_ids = 64
        self.taken: dict[int, int] = {}
        self.results = Results(np.zeros(0, np.int32), np.zeros((0, 68), np.int32))
        self._end = 256
        self._masks = 0

    def take(self, num_bytes: int) -> Table:
        table = Table(self._end, num_bytes)
        self._end += -(-num_bytes // 256) * 256 + 256
        self.taken[table.address] = num_bytes
        return table

    def give(self, table: DeviceTable) -> None:
        size = self.taken.pop(table.address)
        self.memory[table.address // 4 : (table.address + size) // 4] = 0x5A5A5A5A

    def write(self, address: int, values: IntArray) -> None:
        flat = values.reshape(-1)
        if len(flat):
            start = max(at for at in self.taken if at <= address)
            assert address + flat.nbytes <= start + self.taken[start]
        self.memory[address // 4 : address // 4 + len(flat)] = flat

    def count_tokens(self, history: int, token_ids: IntArray, num_prompt: int) -> None:
        counts = self.view(history, self.vocab_size)
        counts[:] = 0
        counts[token_ids[:num_prompt]] |= 1
        np.add.at(counts, token_ids[num_prompt:], 2)

    def mask_address(self, index: int) -> int:
        if not self._masks:
            self._masks = self.take(4 * 64 * self.num_slots).address
        return self._masks + 4 * 64 * index

    def put_masks(self, masks: Sequence[IntArray]) -> None:
        for index, mask in enumerate(masks):
            self.write(self.mask_address(index), mask)

    def choose(self, batch: Batch, logits: Tensor, *, draws: bool, full: bool) -> None:
        raise AssertionError("there are no batches here")

    def score(self, logits: Tensor, token_ids: IntArray, words: IntArray) -> IntArray:
        raise AssertionError("there are no prompts here")

    def fetch(self, num_rows: int, *, reports: bool) -> Results:
        return self.results

    def view(self, address: int, count: int) -> IntArray:
        assert any(at <= address <= at + size for at, size in self.taken.items())
        return self.memory[address // 4 : address // 4 + count]

    def choose_greedily(self, words: IntArray, logits: FloatArray) -> int:
        """What a greedy row chooses; counted and kept as the newest id of its slot."""
        changed = self.apply_rules(words, logits)[: self.num_ids]
        best = int(np.where(np.isnan(changed), -np.inf, changed).argmax())
        token_id = best if changed[best] > -np.inf else int(words[place.FALLBACK])
        if words[place.SLOT]:
            self.newest[words[place.SLOT] - 1] = token_id
        if history := wide(words, place.HISTORY):
            self.view(history, self.vocab_size)[token_id] += 2
        return NO_TOKEN if np.isnan(changed).any() else token_id

    def apply_rules(self, words: IntArray, logits: FloatArray) -> FloatArray:
        """The logits that a row's choice sees."""
        if not wide(words, place.SOURCE):
            return logits.copy()
        values = logits.copy()
        if allowed := wide(words, place.ALLOWED):
            bits = self.view(allowed, -(-self.vocab_size // 32)).astype("<i4").view(np.uint8)
            held = np.unpackbits(bits, bitorder="little")[: self.vocab_size]
            values[held == 0] = -np.inf
        biases = self._pairs(wide(words, place.BIASES), int(words[place.NUM_BIASES]))
        values[biases[:, 0]] += biases.view(np.float32)[:, 1]
        if history := wide(words, place.HISTORY):
            values = self._penalised(words, values, self.view(history, self.vocab_size))
        masks = self._pairs(wide(words, place.MASKS), int(words[place.NUM_MASKS]))
        newest = self.newest[words[place.SLOT] - 1]
        values[masks[(masks[:, 1] < 0) | (masks[:, 1] == newest), 0]] = -np.inf
        return values

    def _pairs(self, address: int, count: int) -> IntArray:
        return self.view(address, 2 * count).reshape(count, 2) if count else np.empty((0, 2), int)

    def _penalised(self, words: IntArray, values: FloatArray, seen: IntArray) -> FloatArray:
        reals = words.view(np.float32)
        penalty = reals[place.REPETITION]
        changed = np.where(values > 0, values / penalty, values * penalty)
        counts = seen >> 1
        changed -= reals[place.FREQUENCY] * counts.astype(np.float32)
        changed -= reals[place.PRESENCE] * (counts > 0).astype(np.float32)
        return np.where(seen != 0, changed, values)


def wide(words: IntArray, field: int) -> int:
    """64 bits, low word first."""
    return int(words[field : field + 2].copy().view(np.uint64)[0])
