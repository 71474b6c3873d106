"""Forms and tool calls over released vocabularies, where markers are tokens of their own."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pegainfer_server.parsing import ChatParsers
from pegainfer_server.protocol.chat import ChatRequest
from pegainfer_server.protocol.message import Message
from pegainfer_server.structured_request import structured_wish
from pegainfer_server.tool_request import offered_tools
from pegainfer_server.tool_wish import tool_wish

from pegainfer_core.contract import StructuredOutput
from pegainfer_core.grammar import GrammarDesk
from pegainfer_core.text import TOOL_PARSERS, Tokenizer
from tests.grammar.grammars import compiler, ids_of, read, request
from tests.real_inputs import released_tokenizer

pytestmark = pytest.mark.real_inputs

VOCAB, EOS = 151936, 151645
OPEN, CLOSE = 151657, 151658
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Köln", "Rome"]}, "days": {"type": "integer", "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


def tool(name: str, *, strict: bool) -> dict[str, object]:
    return {
        "type": "function",
        "function": {"name": name, "parameters": PARAMETERS, "strict": strict},
    }


@pytest.fixture(scope="module")
def folder() -> Path:
    return released_tokenizer("qwen3")


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_dir(folder)


@pytest.fixture(scope="module")
def desk(folder: Path) -> Iterator[GrammarDesk]:
    made = GrammarDesk(compiler(folder, VOCAB))
    yield made
    made.close()


def wish_of(tokenizer: Tokenizer, parser: str, **fields: object) -> StructuredOutput:
    data = ChatRequest(messages=[Message(role="user", content="x")], **fields)
    parsers = ChatParsers(tools=TOOL_PARSERS[parser])
    tools = offered_tools(data, parsers)
    wish = tool_wish(data, tools, parsers, tokenizer, structured_wish(data))
    assert wish is not None
    return wish.form


def answer(desk: GrammarDesk, form: StructuredOutput, seed: int, **likes: float) -> list[int]:
    """A random answer that prefers markers and ends."""
    problem, grammar = read(desk, request(form, stop_token_ids=[EOS]))
    assert grammar is not None, problem
    chance, ids = random.Random(seed), []
    for count in range(300):
        allowed = ids_of(grammar.mask(count), VOCAB)
        assert not grammar.error and allowed
        marked = [i for i in allowed if i in (OPEN, CLOSE)]
        if EOS in allowed and chance.random() < likes.get("end", 0.3):
            return ids
        token_id = chance.choice(marked or allowed[:2000])
        ids.append(token_id)
        grammar.advance(token_id)
    return ids


@pytest.mark.parametrize("parser", ["hermes", "qwen3_coder"])
def test_required_calls_use_the_markers(
    desk: GrammarDesk, tokenizer: Tokenizer, parser: str
) -> None:
    form = wish_of(tokenizer, parser, tools=[tool("get", strict=True)], tool_choice="required")
    for seed in range(3):
        ids = answer(desk, form, seed, end=1.0)
        assert ids[0] == OPEN and ids[-1] == CLOSE
        delta = TOOL_PARSERS[parser]([tool("get", strict=True)]).feed(
            tokenizer.decode(ids, skip_special_tokens=False)
        )
        (call,) = delta.tool_calls
        arguments = json.loads(call.arguments)
        assert arguments["city"] in ("Köln", "Rome") and arguments["days"] <= 9


@pytest.mark.parametrize("parser", ["hermes", "qwen3_coder"])
def test_strict_tools_leave_text_free_and_hold_calls(
    desk: GrammarDesk, tokenizer: Tokenizer, parser: str
) -> None:
    form = wish_of(tokenizer, parser, tools=[tool("get", strict=True)])
    _, grammar = read(desk, request(form, stop_token_ids=[EOS]))
    assert grammar is not None
    text = tokenizer.encode("Let me see.\n", add_special_tokens=False)
    begin = {
        "hermes": '\n{"name": "get", "arguments": {"city": "',
        "qwen3_coder": "\n<function=get>\n<parameter=city>\n",
    }[parser]
    call = [OPEN, *tokenizer.encode(begin, add_special_tokens=False)]
    for count, token_id in enumerate([*text, *call]):
        allowed = ids_of(grammar.mask(count), VOCAB)
        assert token_id in allowed, tokenizer.token_text(token_id)
        assert (EOS in allowed) == (count <= len(text))
        grammar.advance(token_id)
    allowed = ids_of(grammar.mask(len(text) + len(call)), VOCAB)
    texts = {tokenizer.token_text(token_id) for token_id in allowed}
    assert {"K", "R"} <= texts and "P" not in texts


def test_the_letters_of_a_marker_are_no_way_around(desk: GrammarDesk, tokenizer: Tokenizer) -> None:
    form = wish_of(tokenizer, "hermes", tools=[tool("get", strict=True)])
    _, grammar = read(desk, request(form, stop_token_ids=[EOS]))
    assert grammar is not None
    ids = [tokenizer.token_to_id(letter) for letter in "a<tool_call"]
    for count, token_id in enumerate(ids):
        assert token_id in ids_of(grammar.mask(count), VOCAB)
        grammar.advance(token_id)
    assert tokenizer.token_to_id(">") not in ids_of(grammar.mask(len(ids)), VOCAB)


def test_a_form_or_a_call(desk: GrammarDesk, tokenizer: Tokenizer) -> None:
    form = wish_of(
        tokenizer, "hermes", tools=[tool("get", strict=False)], guided_json={"type": "integer"}
    )
    problem, grammar = read(desk, request(form, stop_token_ids=[EOS]))
    assert grammar is not None, problem
    first = {tokenizer.token_text(i) for i in ids_of(grammar.mask(0), VOCAB)}
    assert {"1", "-", "<tool_call>"} <= first and "{" not in first


def test_masks_of_a_schema_are_quick(desk: GrammarDesk, tokenizer: Tokenizer) -> None:
    fields = [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}]
    properties = {f"field_{i}": fields[i % 3] for i in range(20)}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    value = {name: ["some text", 17, True][i % 3] for i, name in enumerate(properties)}
    form = StructuredOutput(kind="json_schema", text=json.dumps(schema))
    _, grammar = read(desk, request(form, stop_token_ids=[EOS]))
    assert grammar is not None
    ids = tokenizer.encode(json.dumps(value), add_special_tokens=False)
    for count, token_id in enumerate(ids):
        grammar.mask(count)
        grammar.advance(token_id)
    assert EOS in ids_of(grammar.mask(len(ids)), VOCAB)
    # Processor time; a tenth of a millisecond is usual.
    assert grammar._spent_s < 2e-3 * len(ids)
