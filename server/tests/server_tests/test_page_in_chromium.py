"""The page as people see it: in a browser, with keys, a chat that streams, reasoning and a stop.

`PEGAINFER_SCREENSHOTS` names a folder that gets pictures; `PEGAINFER_REQUIRE_CHROMIUM` makes a
missing browser a failure instead of a reason to skip.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pegainfer_server.parsing import ChatParsers

from pegainfer_core.text import REASONING_PARSERS

from .chromium import Page, browsing, find_chromium
from .scripted_engine import Script, chain
from .served import serving

pytestmark = pytest.mark.real_inputs

ANSWER = "<think>hm & so</think><b>Bold</b> <script>alert(1)</script>"
LIGHT_INK, DARK_INK = "rgb(27, 30, 40)", "rgb(231, 233, 240)"


@pytest.fixture(scope="module")
def browser() -> str:
    found = find_chromium()
    if found is None:
        message = "no Chromium is installed (Debian: apt install chromium)"
        if os.environ.get("PEGAINFER_REQUIRE_CHROMIUM"):
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.fixture
def page(browser: str, tmp_path: Path) -> Iterator[Page]:
    with browsing(browser, tmp_path / "profile") as page:
        page.look(1280, 820)
        yield page


def spoken(text: str, script: Script) -> None:
    """Let the model say a text, whatever it is asked, and then end."""
    tokens = [*text.encode(), 256]
    prompts: dict[int, int] = {}

    def next_token(ids: list[int]) -> int:
        start = prompts.setdefault(id(ids), len(ids))
        return tokens[min(len(ids) - start, len(tokens) - 1)]

    script.next_token = next_token  # type: ignore[method-assign]


def test_a_chat_streams_and_is_only_text(page: Page, folder: Path) -> None:
    script = Script(step_s=0.005)
    spoken(ANSWER, script)
    with serving(
        folder, script, parsers=ChatParsers(reasoning=REASONING_PARSERS["think"])
    ) as server:
        page.open(server.url)
        page.wait_for("document.querySelector('#health').textContent === 'ok'")
        page.wait_for("document.querySelector('#context').textContent === '4,096 tokens'")
        page.fill("#prompt", "<i>Hello</i>")
        page.press_enter()
        # It grows while it comes: reasoning first, apart from the answer, then folded away.
        page.wait_for("document.querySelector('.reasoning .text')?.textContent.startsWith('hm')")
        assert page.run("document.querySelector('.busy') !== null")
        page.wait_for("document.querySelector('.note') !== null")
        assert page.run("document.querySelector('.reasoning .text').textContent") == "hm & so"
        assert page.run("document.querySelector('.reasoning').open") is False
        shown = page.run("document.querySelector('.assistant > .text').textContent")
        assert shown == ANSWER.partition("</think>")[2]
        assert page.text(".user .text") == "<i>Hello</i>"
        assert (
            page.run(
                "document.querySelectorAll('#messages b, #messages i, #messages script').length"
            )
            == 0
        )
        assert "tokens/s" in page.text(".note")
        # What was said before goes along, without its reasoning.
        page.fill("#prompt", "again")
        page.click("#send")
        page.wait_for("document.querySelectorAll('.note').length === 2")
        asked = bytes(server.script.requests[-1].prompt_token_ids).decode()
        assert asked == f"[user]<i>Hello</i>[assistant]{shown}[user]again>"
        page.wait_for("document.querySelector('#answered').textContent === '2'")
        picture(page, "chat")
        page.click("#clear")
        assert "Ask the model" in page.text("#messages")
        assert page.faults == []
        assert all(url.startswith(server.url) for url in page.requests)


def test_an_answer_can_be_stopped(page: Page, folder: Path) -> None:
    script = Script(table={ord(">"): ord("a"), ord("a"): ord("a")}, step_s=0.01)
    with serving(folder, script) as server:
        page.open(server.url)
        page.fill("#prompt", "go")
        page.click("#send")
        page.wait_for("document.querySelector('.assistant .text').textContent.length > 5")
        page.wait_for("Number(document.querySelector('#generated').textContent) > 10")
        assert page.text("#running") == "1 of 256"
        page.click("#stop")
        page.wait_for("document.querySelector('.note')?.textContent === 'stopped'")
        server.wait_for(lambda: server.state.num_open == 0)
        page.wait_for("document.querySelector('#aborted').textContent === '1'")
        assert page.run("document.querySelector('#send').hidden") is False
        assert page.faults == []


def test_a_key_is_asked_for(page: Page, folder: Path) -> None:
    script = Script(table=chain(">", "a", "b", 256))
    digests = (hashlib.sha256(b"one").digest(),)
    with serving(folder, script, key_digests=digests) as server:
        page.open(server.url)
        for key, accepted in (("two", False), ("one", True)):
            page.wait_for("document.querySelector('#key-dialog').open")
            page.fill("#key-input", key)
            page.click("#key-save")
            page.wait_for(f"!document.querySelector('#key-dialog').open || {int(not accepted)}")
        page.wait_for("document.querySelector('#model').textContent === 'm'")
        page.fill("#prompt", "go")
        page.press_enter()
        page.wait_for("document.querySelector('.note') !== null")
        assert page.text(".assistant > .text") == "ab"
        # Reloaded, the tab still has it; another tab would be asked.
        page.open(server.url)
        page.wait_for("document.querySelector('#model').textContent === 'm'")
        assert page.run("localStorage.length") == 0


def test_what_the_server_refuses_is_told(page: Page, folder: Path) -> None:
    with serving(folder, Script(max_num_seqs=1), max_queue=0) as server:
        page.open(server.url)
        page.wait_for("document.querySelector('#health').textContent === 'ok'")
        page.run("document.querySelector('#max-tokens').value = 99999")
        page.fill("#prompt", "go")
        page.press_enter()
        page.wait_for("document.querySelector('.fault') !== null")
        assert "99999" in page.text(".fault")
        assert "(request " in page.text(".fault")
        assert page.run("document.querySelector('#prompt').value") == "go"
        server.state.draining = True
        page.wait_for("document.querySelector('#health').textContent === 'draining'")
    page.wait_for("document.querySelector('#health').textContent === 'unreachable'")


def test_it_fits_any_window_in_any_light(page: Page, folder: Path) -> None:
    script = Script(table=chain(">", *"Once upon a time", 256))
    with serving(folder, script, model_names=("a-model-with-a-rather-long-name/" * 3,)) as server:
        page.open(server.url)
        page.fill("#prompt", "word " * 200)
        page.press_enter()
        page.wait_for("document.querySelector('.note') !== null")
        for width in (1600, 1000, 800, 360):
            for scheme, ink in (("light", LIGHT_INK), ("dark", DARK_INK)):
                page.look(width, 800, scheme)
                assert page.run("document.documentElement.scrollWidth") <= width
                assert page.run("getComputedStyle(document.body).color") == ink
                picture(page, f"{width}-{scheme}")
        assert page.faults == []


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("PEGAINFER_SCREENSHOTS"):
        page.screenshot(Path(folder) / f"{name}.png")
