"""Assemble the sample corpus: which texts, how often, and what is held out. Knows no token ids."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from samples import units
from samples.sources import read_prose, read_scenes
from samples.words import words_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence
    from pathlib import Path

    from samples.sources import Prose, Scene

_SEED = 20
# Every pass cuts the texts anew. Moby Dick is short and what readers recognise: it goes in twice.
_NUM_PASSES = 3
_CHAPTER_REPEATS = 2
_HELD_OUT_EVERY = 40
_Text = TypeVar("_Text", bound="Prose | Scene")


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Training units, held-out units, and the words that occur in the texts."""

    train: list[str]
    held_out: list[str]
    words: list[str]


def _split(texts: Sequence[_Text]) -> tuple[list[_Text], list[_Text]]:
    # From the middle on: a chapter that everyone knows, like the first one, is trained on.
    first = _HELD_OUT_EVERY // 2
    held_out = list(texts[first::_HELD_OUT_EVERY])
    return [text for text in texts if text not in held_out], held_out


def _units(
    proses: Sequence[Prose], scenes: Sequence[Scene], topics: Counter[str], rng: random.Random
) -> list[str]:
    cut: list[str] = []
    for prose in proses:
        cut += units.prose_text(prose, rng)
        cut += units.prose_chats(prose, rng)
        cut += units.topic_chats(prose, topics, rng)
    for scene in scenes:
        cut += units.scene_text(scene, rng)
        cut += units.scene_chats(scene, rng)
    return cut


def build_corpus(sources: Path) -> Corpus:
    """Read both archives in `sources` and cut them into shuffled units.

    Raises:
        FileNotFoundError: an archive is missing; the message says how to fetch it.
    """
    addresses, chapters = read_prose(sources)
    scenes = read_scenes(sources)
    rng = random.Random(_SEED)
    topics = units.topic_counts([*addresses, *chapters])
    train_addresses, held_addresses = _split(addresses)
    train_chapters, held_chapters = _split(chapters)
    train_scenes, held_scenes = _split(scenes)
    train: list[str] = []
    for _ in range(_NUM_PASSES):
        proses = [*train_addresses, *train_chapters * _CHAPTER_REPEATS]
        train += _units(proses, train_scenes, topics, rng)
    held_out = _units([*held_addresses, *held_chapters], held_scenes, topics, rng)
    rng.shuffle(train)
    rng.shuffle(held_out)
    words: set[str] = set()
    for prose in [*addresses, *chapters]:
        words.update(word for run in prose.runs for text in run for word in words_of(text))
    for scene in scenes:
        words.update(w for s in scene.speeches for w in words_of(f"{s.speaker}: {s.text}"))
    return Corpus(train=train, held_out=held_out, words=sorted(words))
