"""Datasets: exact token counts, seeds, and files that are not what they should be."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegainfer_bench.dataset import BenchRequest, RandomPrompts, draw_sharegpt, read_custom

from pegainfer_core.plugin import CommandFault
from pegainfer_core.text import Tokenizer


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0, 0.99), st.integers(0, 9), st.integers())
def test_random_prompts(
    input_tokens: int, output_tokens: int, ratio: float, prefix: int, seed: int
) -> None:
    prompts = RandomPrompts(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        range_ratio=ratio,
        prefix_tokens=prefix,
        vocab_low=10,
        vocab_high=20,
    )
    drawn = prompts.draw(6, random.Random(seed), seed)
    assert drawn == prompts.draw(6, random.Random(seed), seed)
    for request in drawn:
        assert request.prompt[:prefix] == drawn[0].prompt[:prefix]
        assert all(10 <= token < 20 for token in map(int, request.prompt))
        for count, middle in (
            (len(request.prompt) - prefix, input_tokens),
            (request.output_tokens, output_tokens),
        ):
            assert max(1, int(middle * (1 - ratio))) <= count <= max(1, middle * (1 + ratio))
            assert ratio or count == middle


def test_other_seeds_give_other_prompts() -> None:
    prompts = RandomPrompts(input_tokens=50, output_tokens=1, vocab_high=1000)
    first, second = (prompts.draw(2, random.Random(seed), seed) for seed in (1, 2))
    assert first != second and first[0] != first[1]


@pytest.fixture
def sharegpt(tmp_path: Path) -> Path:
    good = [
        {"id": str(n), "conversations": [{"from": "human", "value": f"question {n} " * 3},
                                         {"from": "gpt", "value": "answer" * (1 + n)}]}
        for n in range(10)
    ]  # fmt: skip
    odd: list[object] = [
        {"conversations": []},
        {"conversations": [{"value": "alone"}]},
        {"conversations": [{"value": 7}, {"value": "x"}]},
        {"conversations": [{"value": ""}, {"value": "x"}]},
        {"items": []},
        None,
        "text",
    ]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([*odd, *good]))
    return path


def test_sharegpt_is_drawn_by_seed(sharegpt: Path, echo: Path) -> None:
    tokenizer = Tokenizer.from_dir(echo)

    def draw(seed: int, count: int = 5) -> list[BenchRequest]:
        rng = random.Random(seed)
        return draw_sharegpt(sharegpt, count, rng, tokenizer=tokenizer, output_tokens=None)

    assert draw(1) == draw(1) != draw(2)
    drawn = draw(1, 25)
    assert len({request.prompt for request in drawn}) == 10
    for request in drawn:
        number = int(str(request.prompt).split()[1])
        assert request.output_tokens == len("answer") * (1 + number)


def test_sharegpt_lengths_are_bounded(tmp_path: Path, echo: Path) -> None:
    def entry(prompt: str, answer: str) -> dict[str, object]:
        return {"conversations": [{"value": prompt}, {"value": answer}]}

    path = tmp_path / "long.json"
    tokenizer = Tokenizer.from_dir(echo)
    path.write_text(json.dumps([entry("p" * 1500, "a" * 9), entry("pppp", "a"),
                                entry("p", "aaaa"), entry("p" * 900, "a" * 1500)]))  # fmt: skip
    with pytest.raises(CommandFault, match="none of 4 conversations fits"):
        draw_sharegpt(path, 1, random.Random(0), tokenizer=tokenizer, output_tokens=None)
    (request,) = draw_sharegpt(path, 1, random.Random(0), tokenizer=None, output_tokens=3)
    assert request.output_tokens == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        ("", "is no JSON list"),
        ("[1, 2", "is no JSON list"),
        ("{}", "is no JSON list"),
        ("[]", "holds no conversation"),
        ('[{"a": 1}]', "none of its 1 entries"),
        ("\udcff", "is no JSON list"),
    ],
)
def test_a_sharegpt_file_at_fault(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "data.json"
    if content is not None:
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(CommandFault, match=message):
        draw_sharegpt(path, 1, random.Random(0), tokenizer=None, output_tokens=1)


def test_custom_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"prompt": "one"}\n\n{"prompt": [1, 2], "output_tokens": 9, "more": 1}\n')
    found = read_custom(path, 3, 5)
    one = BenchRequest(prompt="one", output_tokens=5)
    assert found == [one, BenchRequest(prompt=[1, 2], output_tokens=9), one]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("\n \n", "holds no line"),
        ('{"prompt": "a"}\n{"prompt": ""}', "line 2: .*expected"),
        ('{"text": "a"}', "line 1: .*prompt"),
        ('{"prompt": [1, "b"]}', "line 1"),
        ('{"prompt": "a", "output_tokens": 0}', "line 1"),
        ("not json", "line 1"),
    ],
)
def test_a_custom_file_at_fault(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "lines.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CommandFault, match=message):
        read_custom(path, 5, 1)
