"""Tool calls in every format: what is a call, what is none, and that no cut changes it."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegainfer_core.text import TOOL_PARSERS, AnswerDelta
from tests.text.parsed import calls_of, cut_texts, parse

TOOLS: list[dict[str, object]] = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {
                    "s": {"type": "string"},
                    "n": {"type": "integer"},
                    "x": {"type": "number"},
                    "b": {"type": "boolean"},
                    "o": {"type": "object"},
                    "l": {"type": ["array", "null"]},
                    "m": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "any": {},
                },
            },
        },
    }
]

H, H_END = "<tool_call>", "</tool_call>"
D, D_END, SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
DS, DS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
K, K_END, K_ARG = "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"
KS, KS_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"


def hermes(name: str, arguments: str) -> str:
    return f'{H}\n{{"name": "{name}", "arguments": {arguments}}}\n{H_END}'


def xml(name: str, **values: str) -> str:
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"{H}\n<function={name}>\n{inside}</function>\n{H_END}"


def v31(name: str, arguments: str) -> str:
    return f"{D}{name}{SEP}{arguments}{D_END}"


def v3(name: str, arguments: str) -> str:
    return f"{D}function{SEP}{name}\n```json\n{arguments}\n```{D_END}"


def kimi(name: str, arguments: str, index: int = 0) -> str:
    return f"{K}functions.{name}:{index}{K_ARG}{arguments}{K_END}"


def whole(parser: str, text: str) -> AnswerDelta:
    return parse(TOOL_PARSERS[parser](TOOLS), [text])


NESTED = '{"a": {"b": [1, {"c": "}"}]}, "s": "한\\n\\"q\\""}'
#: Parser, text, content, calls.
GOOD: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    ("hermes", hermes("f", '{"n": 3}'), "", [("f", '{"n": 3}')]),
    ("hermes", f"Look.\n{hermes('f', NESTED)}\n", "Look.", [("f", NESTED)]),
    (
        "hermes",
        f"{hermes('f', '{}')}\n{hermes('g', '{ }')}",
        "",
        [("f", "{}"), ("g", "{ }")],
    ),
    ("hermes", f"{hermes('f', '{}')}\n\nDone.\n", "Done.\n", [("f", "{}")]),
    ("hermes", f'{H}{{"arguments": {{"x": 1.0}}, "name": "f"}}{H_END}', "", [("f", '{"x": 1.0}')]),
    ("hermes", f'{H}{{"name": "f"}}{H_END}', "", [("f", "{}")]),
    ("hermes", hermes("f", '"{\\"n\\": 3}"'), "", [("f", '{"n": 3}')]),
    # A marker inside a string is text, and the last one may be missing.
    ("hermes", hermes("f", f'{{"s": "{H}{H_END}"}}'), "", [("f", f'{{"s": "{H}{H_END}"}}')]),
    ("hermes", hermes("f", "{}").removesuffix(H_END), "", [("f", "{}")]),
    ("qwen3_coder", xml("f"), "", [("f", "{}")]),
    ("qwen3_coder", f"a\n\n{xml('f', n='3', s='4')}", "a", [("f", '{"n": 3, "s": "4"}')]),
    (
        "qwen3_coder",
        f"{xml('f', s='x')}\n{xml('f', b='True')}\n",
        "",
        [("f", '{"s": "x"}'), ("f", '{"b": true}')],
    ),
    ("qwen3_coder", f"<function=f>\n</function>\n{H_END}", "", [("f", "{}")]),
    (
        "qwen3_coder",
        xml("f", s=f"a </parameter> b\n{H_END}\n"),
        "",
        [("f", f'{{"s": "a </parameter> b\\n{H_END}\\n"}}')],
    ),
    ("deepseek", f"{DS}{v31('f', NESTED)}{DS_END}", "", [("f", NESTED)]),
    (
        "deepseek",
        f"Hm.{DS}{v3('f', '{}')}\n{v3('g', NESTED)}{DS_END}",
        "Hm.",
        [("f", "{}"), ("g", NESTED)],
    ),
    ("deepseek", v31("f", "{}"), "", [("f", "{}")]),
    (
        "kimi_k2",
        f"Hm.{KS}{kimi('f', NESTED)}{kimi('g', '{}', 1)}{KS_END}",
        "Hm.",
        [("f", NESTED), ("g", "{}")],
    ),
]

#: Parser and text without a call in it: all of it is content.
BAD: list[tuple[str, str]] = [
    ("hermes", "a <tool_cal b</tool_call> \n\n"),
    ("hermes", hermes("f", '{"n": 3')),
    ("hermes", hermes("f", "[1]")),
    ("hermes", hermes("f", '"x"')),
    ("hermes", hermes("f", '{"n": NaN}')),
    ("hermes", hermes("f", '{"s": "a\nb"}')),
    ("hermes", hermes("f", '{"n": 1e999}')),
    ("hermes", hermes("f", f'{{"n": {"9" * 5000}}}')),
    ("hermes", hermes("f", '{"a": ' * 1200 + "1" + "}" * 1200)),
    ("hermes", hermes("\\ud800", "{}")),
    ("hermes", f'{H}{{"name": 3, "arguments": {{}}}}{H_END}'),
    ("hermes", f"{H}{H_END}"),
    ("hermes", f"a\n{H}\n" + "[" * 5000 + f"\n{H_END}\n"),
    ("hermes", hermes("f", '{"n": 3}')[:-20]),
    ("qwen3_coder", f"{H}\n<function=f>\n<parameter=s>\nx\n"),
    ("qwen3_coder", f"{H}\n<function=f>\nx\n</function>\n{H_END}"),
    ("qwen3_coder", xml("f", n="1").replace("</function>", "")),
    ("qwen3_coder", xml("f", n="1").replace("</parameter>\n", "</parameter>\n<parameter=n>2\n")),
    ("qwen3_coder", hermes("f", "{}")),
    ("deepseek", f"{DS}{DS_END}\n"),
    ("deepseek", f"{DS} {v31('f', '[]')}"),
    ("deepseek", f"{DS}\n{v31('', '{}')}{DS_END}"),
    ("deepseek", f"x\n{DS}{D}f{SEP}{{"),
    ("kimi_k2", f"{KS}{K}f{K_ARG}{{}}{K_END}{KS_END}"),
    ("kimi_k2", f"{KS}{kimi('f', '{')}"),
]


@pytest.mark.parametrize(("parser", "text", "content", "calls"), GOOD)
def test_calls_are_found(
    parser: str, text: str, content: str, calls: list[tuple[str, str]]
) -> None:
    found = whole(parser, text)
    assert found.content == content
    assert calls_of(found) == calls
    assert parse(TOOL_PARSERS[parser](TOOLS), list(text)) == found
    for _, arguments in calls:
        assert isinstance(json.loads(arguments), dict)


@pytest.mark.parametrize(("parser", "text"), BAD, ids=range(len(BAD)))
def test_what_is_no_call_comes_back_as_it_was(parser: str, text: str) -> None:
    assert whole(parser, text) == AnswerDelta(content=text)
    assert parse(TOOL_PARSERS[parser](TOOLS), list(text)) == AnswerDelta(content=text)


@pytest.mark.parametrize(
    ("parser", "bad", "good"),
    [
        ("hermes", hermes("f", "{"), hermes("g", "{}")),
        ("hermes", f"{H}\nno call ", hermes("g", "{}")),
        # An open string swallows the marker, until the end shows that it was none.
        ("hermes", hermes("f", '{"s": "}'), hermes("g", "{}")),
        ("qwen3_coder", f"{H}\n<function=f>\nx\n</function>{H_END}", xml("g")),
        ("qwen3_coder", f"{H}<function=f><parameter=s>x</function>{H_END}", xml("g")),
        ("deepseek", f"{DS}{v31('f', '[]')}", v31("g", "{}")),
        ("kimi_k2", f"{KS}{kimi('f', '[]')}", kimi("g", "{}", 1)),
    ],
)
def test_a_call_behind_a_broken_one_is_still_found(parser: str, bad: str, good: str) -> None:
    found = whole(parser, f"{bad}{good}")
    assert found.content == bad
    assert calls_of(found) == [("g", "{}")]


def test_very_many_markers_in_a_value_are_not_looked_at_for_ever() -> None:
    parser = TOOL_PARSERS["hermes"]([])
    text = f'{H}{{"s": "' + f"{H_END}{H}" * 2000
    started_s = time.process_time()
    found = parse(parser, [text[i : i + 11] for i in range(0, len(text), 11)])
    assert found == AnswerDelta(content=text)
    assert time.process_time() - started_s < 2  # Without a bound six seconds.


def test_kimi_keeps_its_own_ids_and_others_get_one() -> None:
    found = whole("kimi_k2", f"{KS}{kimi('a.b', '{}', 7)}{KS_END}")
    assert [(call.id, call.name) for call in found.tool_calls] == [("functions.a.b:7", "a.b")]
    parser = TOOL_PARSERS["hermes"]([])
    calls = parser.feed(hermes("f", "{}") * 2).tool_calls
    ids = [call.id or "" for call in calls]
    assert len(set(ids)) == 2 and all(re.fullmatch(r"call_[0-9a-f]{24}", name) for name in ids)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("s", "3", "3"),
        ("s", "null", "null"),
        ("s", "", ""),
        ("s", "\n x \n", "\n x \n"),
        ("n", "3", 3),
        ("n", "3.5", "3.5"),
        ("n", "many", "many"),
        ("x", "3.5", 3.5),
        ("b", "true", True),
        ("b", "False", False),
        ("b", "1", "1"),
        ("o", '{"a": [1]}', {"a": [1]}),
        ("l", "[1, 2]", [1, 2]),
        ("l", "None", None),
        ("m", "null", None),
        ("m", "[1]", "[1]"),
        ("any", "[1]", [1]),
        ("any", "text", "text"),
        ("any", "[1e999]", "[1e999]"),
        ("any", '["\\ud800"]', '["\\ud800"]'),
        ("undeclared", "3", "3"),
    ],
)
def test_the_schema_types_a_value(key: str, text: str, value: object) -> None:
    ((_, arguments),) = calls_of(whole("qwen3_coder", xml("f", **{key: text})))
    assert json.loads(arguments) == {key: value}


_WORDS = st.integers(0, 9).map(lambda n: f"word{n}")
_GLUE = st.sampled_from(["\n", "\n\n", " ", "<", '"', "\\", "{", "}", "<tool", "</function>"])


def _texts(parser: str) -> st.SearchStrategy[str]:
    """Calls, broken calls, markers and words in any order; words tell whether text was lost."""
    own = [text for name, text, *_ in GOOD if name == parser]
    own += [text for name, text in BAD if name == parser and len(text) < 1000]
    parts = st.one_of(
        st.sampled_from(own),
        st.tuples(st.sampled_from(own), st.integers(0, 60)).map(lambda p: p[0][: p[1]]),
        st.sampled_from(TOOL_PARSERS[parser]([]).tags),
        _WORDS,
        _GLUE,
    )
    return st.lists(parts, max_size=8).map("".join)


@pytest.mark.parametrize("parser", TOOL_PARSERS)
def test_no_cut_changes_anything(parser: str) -> None:
    @settings(max_examples=100, deadline=None)
    @given(cut_texts(_texts(parser)))
    def check(pieces: list[str]) -> None:
        text = "".join(pieces)
        found = whole(parser, text)
        assert parse(TOOL_PARSERS[parser](TOOLS), pieces) == found
        shown = found.content + "".join(call.arguments for call in found.tool_calls)
        assert sorted(re.findall(r"word\d", shown)) == sorted(re.findall(r"word\d", text))
        for call in found.tool_calls:
            assert call.name and isinstance(json.loads(call.arguments), dict)
        if not found.tool_calls:
            assert found.content == text

    check()
