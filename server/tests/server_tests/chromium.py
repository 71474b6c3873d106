"""A headless Chromium, driven over two pipes: no library and no port is needed for that."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
TIMEOUT_S = 30.0
#: The browser reads commands from descriptor 3 and writes answers to 4, whatever these are here.
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    """The browser of this machine."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab.

    Attributes:
        faults: What went wrong on it: exceptions, errors on the console, broken rules.
        requests: URLs it asked for.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self.faults: list[str] = []
        self.requests: list[str] = []
        self._commands = commands
        self._answers = answers
        self._rest = b""
        self._ids = itertools.count(1)
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """Send a command and wait for its answer; what else comes meanwhile is noted."""
        number = next(self._ids)
        message: dict[str, object] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def run(self, code: str) -> Any:
        """The value of an expression; a promise is waited for."""
        done = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait_for(self, code: str, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until an expression is true."""
        deadline_s = time.monotonic() + timeout_s
        while not self.run(code):
            assert time.monotonic() < deadline_s, f"not so: {code}; {self.faults}"
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def fill(self, selector: str, text: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element, as a user would."""
        box = self.run(
            f"(r => [r.x + r.width / 2, r.y + r.height / 2])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            where = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **where)

    def press_enter(self) -> None:
        for kind in ("keyDown", "keyUp"):
            key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
            self.call("Input.dispatchKeyEvent", type=kind, **key)

    def look(self, width: int, height: int, scheme: str = "light") -> None:
        """Set the size of the window and the colours that its user prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._answers, 1 << 16)
            assert part, "the browser went away"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.faults.append(str(params["exceptionDetails"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.faults.append(params["entry"]["text"])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                self.faults.append(str(params["args"]))
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])


@contextlib.contextmanager
def browsing(browser: str, profile: Path) -> Iterator[Page]:
    """A browser with one empty tab, until the block ends."""
    command_out, command_in = os.pipe()
    answer_out, answer_in = os.pipe()
    flags = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
    # Containers run as root and have little shared memory; updates and the like are not wanted.
    flags += ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run"]
    flags += ["--disable-background-networking", "--disable-component-update", "--no-proxy-server"]
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(command_out), str(answer_in), browser, *flags],
        pass_fds=(command_out, answer_in),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(command_out)
    os.close(answer_in)
    try:
        yield Page(command_in, answer_out)
    finally:
        os.close(command_in)
        process.terminate()
        process.wait(TIMEOUT_S)
        os.close(answer_out)
