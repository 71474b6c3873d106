from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from pegainfer_core.cli.flags import Parser, UsageError, build, place_words
from pegainfer_core.contract import CoreOptions
from pegainfer_core.plugin.flag import flags_of


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """One field of every kind."""

    source: Annotated[str, Meta(description="where from", extra={"positional": True})]
    count: Annotated[int, Meta(ge=1, description="how many, in % of all")] = 3
    limit: Annotated[int, Meta(ge=1)] | None = None
    share: Annotated[float, Meta(gt=0, le=1)] = 0.5
    mode: Literal["fast", "slow"] = "slow"
    page: Literal[16, 32] = 16
    cache: bool = True
    names: list[str] = []


def parse(*argv: str) -> Options:
    flags = flags_of(Options)
    parser = Parser("test", "a test")
    parser.add_flags("flags", flags)
    values, words = parser.parse(argv)
    place_words(flags, values, words)
    return build(Options, values)


def test_defaults_and_a_positional() -> None:
    assert parse("here") == Options(source="here")
    assert parse("--source", "here") == parse("--source=here") == parse("here")


class Files(msgspec.Struct, frozen=True, kw_only=True):
    first: Annotated[str, Meta(extra={"positional": True})]
    others: Annotated[list[str], Meta(extra={"positional": True})] = []


@pytest.mark.parametrize(
    ("argv", "others"),
    [("a", []), ("a b c", ["b", "c"]), ("a b --others c d", ["c", "b", "d"])],
)
def test_a_positional_list_takes_every_word_that_is_left(argv: str, others: list[str]) -> None:
    flags = flags_of(Files)
    parser = Parser("prog", "")
    parser.add_flags("flags", flags)
    values, words = parser.parse(argv.split())
    place_words(flags, values, words)
    assert build(Files, values) == Files(first="a", others=others)


def test_every_kind_of_value() -> None:
    options = parse(
        *"here --count 4 --limit=5 --share 0.25 --mode fast --page 32".split(),
        *"--no-cache --names a --names b".split(),
    )
    assert options == Options(
        source="here",
        count=4,
        limit=5,
        share=0.25,
        mode="fast",
        page=32,
        cache=False,
        names=["a", "b"],
    )


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("--cache", True),
        ("--no-cache", False),
        ("--cache=true", True),
        ("--cache=false", False),
        ("--cache=0", False),
        ("--cache=ON", True),
    ],
)
def test_spellings_of_a_bool(word: str, value: bool) -> None:
    # A bool takes no further word: the positional after it stays one.
    assert parse(word, "here") == Options(source="here", cache=value)


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ("x --count 0", "--count 0: expected int >= 1"),
        ("x --count many", "--count many: expected int"),
        ("x --limit 0", "--limit 0: expected int >= 1"),
        (f"x --count {2**63}", f"--count {2**63}: expected int of at most 64 bits"),
        (f"x --limit {10**30}", "expected int of at most 64 bits"),
        ("x --share nan", "--share nan: expected float > 0"),
        ("x --share 1.5", "--share 1.5: expected float <= 1"),
        ("x --mode quick", "--mode quick: expected one of fast, slow"),
        ("x --page 17", "--page 17: expected one of 16, 32"),
        ("x --cache=maybe", "--cache=maybe: expected true or false"),
        ("x --cont 3", "unknown flag --cont; did you mean --count?"),
        ("x --zzzzzz", "unknown flag --zzzzzz; see test --help"),
        ("x --coun 3", "unknown flag --coun; did you mean --count?"),
        ("x --count", "expected one argument"),
        ("x y", "unexpected argument 'y'"),
        ("x --source y", "--source is given twice: 'y' and 'x'"),
        ("", "--source) is missing: where from"),
    ],
)
def test_faults_name_the_flag_and_what_to_do(argv: str, problem: str) -> None:
    with pytest.raises(UsageError) as fault:
        parse(*argv.split())
    assert problem in str(fault.value)
    assert "\n" not in str(fault.value)


def test_help_names_values_choices_and_defaults() -> None:
    parser = Parser("test", "a test")
    parser.add_flags("flags", flags_of(Options))
    text = " ".join(parser.format_help().split())
    assert "--count N how many, in % of all (default: 3)" in text
    assert "--mode {fast,slow} (default: slow)" in text
    assert "--cache, --no-cache (default: on)" in text


def test_a_type_without_a_spelling_is_refused() -> None:
    class Odd(msgspec.Struct):
        table: dict[str, int] = {}

    with pytest.raises(TypeError, match=r"Odd\.table cannot be a flag"):
        flags_of(Odd)


def test_every_core_option_is_a_flag_with_help() -> None:
    flags = flags_of(CoreOptions)
    assert [flag.field for flag in flags] == list(CoreOptions.__struct_fields__)
    assert all(flag.help for flag in flags)
    by_name = {flag.name: flag for flag in flags}
    assert "--no-prefix-cache" in by_name["--prefix-cache"].spellings


options_strategy = st.builds(
    CoreOptions,
    backend=st.sampled_from(["auto", "numpy", "cuda"]),
    max_model_len=st.none() | st.integers(1, 10**7),
    max_num_seqs=st.integers(1, 4096),
    gpu_memory_utilization=st.floats(0.01, 1.0),
    kv_page_size=st.sampled_from([16, 32, 64]),
    kv_reserve=st.sampled_from(["on-demand", "worst-case"]),
    prefix_cache=st.booleans(),
    kv_hash=st.sampled_from(["native", "xxhash_cbor", "sha256_cbor"]),
    kv_events=st.none() | st.sampled_from(["tcp://*:5557", "jsonl:events.jsonl"]),
    kv_events_encoding=st.sampled_from(["map", "array"]),
    kv_offload=st.none() | st.sampled_from(["host", "host,disk"]),
    cuda_graph=st.booleans(),
    seed=st.integers(-(2**63), 2**63 - 1),
)


@given(options_strategy)
def test_command_line_and_struct_and_json_are_one(options: CoreOptions) -> None:
    argv: list[str] = []
    for field, value in msgspec.to_builtins(options).items():
        name = field.replace("_", "-")
        if isinstance(value, bool):
            argv.append(f"--{name}" if value else f"--no-{name}")
        else:
            argv += [f"--{name}={value!r}" if isinstance(value, float) else f"--{name}={value}"]
    parser = Parser("test", "a test")
    parser.add_flags("flags", flags_of(CoreOptions))
    values, words = parser.parse(argv)
    assert words == []
    assert build(CoreOptions, values) == options
    assert msgspec.json.decode(msgspec.json.encode(options), type=CoreOptions) == options
