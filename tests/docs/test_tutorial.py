"""The tutorial works from its first command to its last, and the served hooks' examples with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.docs.pages import PLUGIN_DOCS
from tests.docs.tutorial_walk import Walk

SERVED_HOOKS = ("server_routes", "engine_ready", "engine_stopping", "request_finished")


class Walked(NamedTuple):
    walk: Walk
    route: bytes
    exit_code: int


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    """The tutorial, followed once; hooks.md's examples are installed beside its plugin."""
    walk = Walk(tmp_path_factory.mktemp("tutorial"))
    walk.install_module("witness", "witness", hook_examples())
    try:
        walk.follow()
        route = walk.get("/parrot")
        yield Walked(walk, route, walk.stop())
    finally:
        walk.kill()


def hook_examples() -> str:
    """The examples of the hooks that accompany a server, as one plugin."""
    text = (PLUGIN_DOCS / "hooks.md").read_text(encoding="utf-8")
    parts = ['__pegainfer_api__ = "1.0"\n']
    for name in SERVED_HOOKS:
        match = re.compile(r"```python\n(.*?)```", re.DOTALL).search(
            text, text.index(f"### `{name}(")
        )
        assert match is not None
        parts.append(match[1])
    return "\n".join(parts)


def test_the_plugin_is_loaded(walked: Walked) -> None:
    lines = walked.walk.output["pegainfer plugins"].splitlines()
    (line,) = [line.split() for line in lines if line.startswith("parrot ")]
    assert line[1:6] == ["pegainfer-parrot", "0.1.0", "1.0", "loaded", "parrot"]


def test_the_checkpoint_is_claimed(walked: Walked) -> None:
    assert "parrot" in walked.walk.output["pegainfer probe parrot-model"]


def test_level_0_passes(walked: Walked) -> None:
    output = walked.walk.output["python -m pytest"]
    assert re.search(r"TestParrot  L0: 14 passed$", output, re.MULTILINE), output


def test_the_server_answers_as_promised(walked: Walked) -> None:
    whole, streamed = walked.walk.answers
    assert json.loads(whole)["choices"][0]["text"] == "Hello, parrot! Hello, parrot!"[:26]
    events = [line[6:] for line in streamed.splitlines() if line.startswith(b"data: {")]
    deltas = [json.loads(event)["choices"][0]["delta"].get("content", "") for event in events]
    assert "".join(deltas) == "Polly Polly "


def test_hook_server_routes_served(walked: Walked) -> None:
    assert json.loads(walked.route) == {"says": "hello"}


def test_hook_engine_ready_served(walked: Walked) -> None:
    log = walked.walk.log
    assert "parrot is ready for 256 requests at once\n" in log
    assert log.index("parrot is ready") < log.index("ready on http://")


def test_hook_engine_stopping_served(walked: Walked) -> None:
    assert walked.exit_code == 0
    assert "38 tokens generated\n" in walked.walk.log


def test_hook_request_finished_served(walked: Walked) -> None:
    told = re.findall(r"^[\w-]+ (length \d+)$", walked.walk.log, re.MULTILINE)
    assert told == ["length 26", "length 12"]
