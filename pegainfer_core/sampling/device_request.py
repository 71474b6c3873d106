"""One running request on the device that chooses its tokens: its words and its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.sampling import choice_words as place
from pegainfer_core.sampling.choice_words import draws, put_wide, row_words
from pegainfer_core.sampling.rule_tables import RuleTables
from pegainfer_core.sampling.step_sampler import ChoiceKind, ChoiceRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.sampling.choice_device import ChoiceDevice, DeviceTable

    IntArray = NDArray[np.int32]

__all__ = ["DeviceRequest"]

_WORD_BYTES = 4
_PAIR_BYTES = 2 * _WORD_BYTES
_RULED = slice(place.SOURCE, place.MASKS + 2)
"""Words that are zero in steps without rules."""


class DeviceRequest:
    """A request from its first choice in a slot to its end or preemption.

    Tables are taken when they are first needed: a copy of the logits for rules, a history for
    penalties, each 4 bytes an id, and the lists.

    Args:
        device: Chooses.
        sequence: The request in its slot.
        seed: Of its draws.

    Attributes:
        request_id: The request's.
        words: [num_words] int32 that are the same in every step.
        kind: Most work any of its choices needs.
        num_logprobs: Reported tokens plus one, 0 for no report.
    """

    def __init__(self, device: ChoiceDevice, sequence: Sequence, seed: int) -> None:
        request = sequence.request
        params = request.params
        if params.logprobs is not None and params.logprobs > device.max_top:
            raise ValueError(f"logprobs is {params.logprobs}, at most {device.max_top} are chosen")
        self.request_id = request.request_id
        self.num_logprobs = 0 if params.logprobs is None else params.logprobs + 1
        self._device = device
        self._sequence = sequence
        self._stint = sequence.num_preemptions
        self._rules = RuleTables(request, device.vocab_size)
        self._draws = draws(params, device.num_ids)
        self._tables: list[DeviceTable] = []
        self._history = 0
        self._num_counted = -1
        self._masks = 0
        self.words = row_words(params, seed, request.sample_index, device.num_ids, device.num_words)
        self.words[place.SLOT] = sequence.slot + 1
        self.words[place.FALLBACK] = self._rules.fallback_id
        self._ruled = np.zeros(_RULED.stop - _RULED.start, np.int32)
        self.kind = ChoiceKind.DRAW if self._draws else ChoiceKind.BEST
        if self.num_logprobs or self._rules.active(0):
            self.kind = ChoiceKind.FULL

    def serves(self, sequence: Sequence) -> bool:
        """Whether it is this sequence's, since its last preemption."""
        return self._sequence is sequence and self._stint == sequence.num_preemptions

    def prepare(self, row: ChoiceRow, words: IntArray) -> ChoiceKind:
        """Complete the words of a step, and bring the tables up to date.

        Returns:
            The least work that covers this choice.

        Raises:
            ValueError: Ids of tokens before this one must be known and are not.
        """
        if self._rules.active(row.num_generated):
            self._apply(row, words)
            return ChoiceKind.FULL
        if self.num_logprobs:
            return ChoiceKind.FULL
        return ChoiceKind.DRAW if self._draws else ChoiceKind.BEST

    def close(self) -> None:
        """Give the tables back."""
        for table in self._tables:
            self._device.give(table)
        self._tables.clear()

    def _apply(self, row: ChoiceRow, words: IntArray) -> None:
        rules = self._rules
        if not self._tables:
            self._make_tables()
        if rules.penalised:
            self._follow(row)
        words[_RULED] = self._ruled
        if not len(rules.masks) and not rules.sequences:
            return
        count = len(rules.masks)
        if rules.sequences:
            masks = self._changing_masks(row)
            self._device.write(self._masks + _PAIR_BYTES * count, masks)
            count += len(masks)
        first = 0 if row.num_generated < rules.min_tokens else rules.num_ends
        put_wide(words, place.MASKS, self._masks + _PAIR_BYTES * first)
        words[place.NUM_MASKS] = count - first

    def _changing_masks(self, row: ChoiceRow) -> IntArray:
        num_unread = row.position - len(row.sequence.token_ids)
        if num_unread not in (0, 1):
            raise ValueError(
                f"request {self.request_id} has bad sequences and {num_unread} unread ids; one of "
                "them at most can be compared on the device"
            )
        return self._rules.changing_masks(row.sequence, num_unread)

    def _make_tables(self) -> None:
        rules, device = self._rules, self._device
        words = np.zeros(device.num_words, np.int32)
        put_wide(words, place.SOURCE, self._take(_WORD_BYTES * device.vocab_size))
        if rules.penalised:
            self._history = self._take(_WORD_BYTES * device.vocab_size)
            put_wide(words, place.HISTORY, self._history)
        allowed = np.empty(0, np.int32) if rules.allowed is None else rules.allowed
        biases, masks = rules.biases.reshape(-1), rules.masks.reshape(-1)
        lists = np.concatenate([allowed, biases, masks])
        num_bytes = _WORD_BYTES * len(lists) + _PAIR_BYTES * len(rules.sequences)
        lists_at = self._take(num_bytes) if num_bytes else 0
        device.write(lists_at, lists)
        if rules.allowed is not None:
            put_wide(words, place.ALLOWED, lists_at)
        put_wide(words, place.BIASES, lists_at + _WORD_BYTES * len(allowed))
        words[place.NUM_BIASES] = len(rules.biases)
        self._masks = lists_at + _WORD_BYTES * (len(allowed) + len(biases))
        self._ruled = words[_RULED]

    def _take(self, num_bytes: int) -> int:
        table = self._device.take(num_bytes)
        self._tables.append(table)
        return table.address

    def _follow(self, row: ChoiceRow) -> None:
        """See that the history holds every token before the chosen one, which is counted there."""
        if self._num_counted != row.position:
            token_ids = row.sequence.token_ids
            if len(token_ids) != row.position:
                raise ValueError(
                    f"request {self.request_id} begins to count at token {row.position}, but "
                    f"{len(token_ids)} of its tokens are known"
                )
            ids = np.array(token_ids, np.int32)
            self._device.count_tokens(self._history, ids, row.sequence.num_prompt)
        self._num_counted = row.position + 1
