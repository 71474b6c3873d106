"""`make demo`: serve a sample checkpoint, ask it twice over HTTP, print what comes back, stop.

Uses the standard library only, so that every line of HTTP is in plain sight.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
READY_TIMEOUT_S = 120.0
COMPLETION_PROMPT = "The state of the Union is"
CHAT_PROMPT = "The American people want peace."


def main() -> int:
    """Run the demo; returns the process's exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen3", help="which sample under samples/ to serve")
    args = parser.parse_args()
    model_dir = ROOT / "samples" / f"{args.model}-sample"
    url = f"http://127.0.0.1:{free_port()}"
    server = start_server(model_dir, url)
    try:
        wait_until_ready(url, server)
        show_completion(url)
        show_chat(url)
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=30)
    print(f"\nserver stopped with exit status {code}")
    return code


def free_port() -> int:
    """A TCP port nobody listens on right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def start_server(model_dir: Path, url: str) -> subprocess.Popen[bytes]:
    """Start `pegainfer serve` as a user would."""
    command = [str(Path(sys.executable).parent / "pegainfer"), "serve"]
    command += ["--model-path", str(model_dir), "--port", url.rpartition(":")[2]]
    print("$", " ".join(os.path.relpath(part) if "/" in part else part for part in command))
    return subprocess.Popen(command)


def wait_until_ready(url: str, server: subprocess.Popen[bytes]) -> None:
    """Poll /health until it answers 200."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with exit status {server.returncode}")
        try:
            with urllib.request.urlopen(f"{url}/health"):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise SystemExit("the server did not become ready")


def post(url: str, body: dict[str, object]) -> urllib.request.Request:
    """A JSON POST request."""
    headers = {"Content-Type": "application/json"}
    return urllib.request.Request(url, json.dumps(body).encode(), headers)


def show_curl(url: str, body: dict[str, object]) -> None:
    """The same request as a command line."""
    print(f"\n$ curl -N {url} -H 'Content-Type: application/json' -d '{json.dumps(body)}'")


def show_completion(url: str) -> None:
    """One completion, answered whole."""
    body: dict[str, object] = {"prompt": COMPLETION_PROMPT, "max_tokens": 64, "temperature": 0}
    show_curl(f"{url}/v1/completions", body)
    with urllib.request.urlopen(post(f"{url}/v1/completions", body)) as response:
        answer = json.load(response)
    print(COMPLETION_PROMPT + answer["choices"][0]["text"])
    print(answer["usage"])


def show_chat(url: str) -> None:
    """One chat, streamed token by token."""
    messages = [{"role": "user", "content": CHAT_PROMPT}]
    body: dict[str, object] = {"messages": messages, "temperature": 0, "stream": True}
    show_curl(f"{url}/v1/chat/completions", body)
    started = time.perf_counter()
    with urllib.request.urlopen(post(f"{url}/v1/chat/completions", body)) as response:
        for number, delta in enumerate(deltas(response)):
            if number == 0:
                first_ms = (time.perf_counter() - started) * 1e3
            print(delta, end="", flush=True)
    print(f"\n(first text after {first_ms:.0f} ms)")


def deltas(lines: Iterator[bytes]) -> Iterator[str]:
    """The text pieces of a chat stream."""
    for line in lines:
        data = line.removeprefix(b"data: ").strip()
        if not data or data == b"[DONE]":
            continue
        delta = json.loads(data)["choices"][0]["delta"]
        text = delta.get("reasoning_content") or delta.get("content")
        if text:
            yield text


if __name__ == "__main__":
    sys.exit(main())
