"""What a user of a server has in hand: its URL. Asks over TCP, streamed and not, and compares."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
TIMEOUT_S = 60.0
JsonObject = dict[str, Any]

#: The fixed greedy request: long enough to take several KV pages.
PROBE: JsonObject = {
    "prompt": [(7 * i) % 251 for i in range(40)],
    "max_tokens": 8,
    "temperature": 0,
    "ignore_eos": True,
    "return_token_ids": True,
}


@dataclass(frozen=True)
class Answer:
    """One answer, the same streamed and whole.

    Attributes:
        text: What the client shows.
        deltas: The pieces of the stream.
        body: The whole answer.
        chunks: The events of the stream.
    """

    text: str
    deltas: list[str]
    body: JsonObject
    chunks: list[JsonObject]

    @property
    def choice(self) -> JsonObject:
        choice: JsonObject = self.body["choices"][0]
        return choice

    @property
    def ending(self) -> tuple[str, object]:
        """Finish reason and stop reason."""
        return self.choice["finish_reason"], self.choice["stop_reason"]

    @property
    def num_tokens(self) -> int:
        count: int = self.body["usage"]["completion_tokens"]
        return count


class HttpServer:
    """A running server."""

    def __init__(self, url: str) -> None:
        self.url = url
        host, _, port = url.removeprefix("http://").rpartition(":")
        self.address = (host, int(port))
        # No proxy of the environment, no certificates: they cost more than a request.
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False, verify=False)
        self._probed: object = None

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

    def get(self, path: str) -> httpx.Response:
        return self._client.get(path)

    def post(self, path: str, body: Mapping[str, object] | bytes) -> httpx.Response:
        """Send a JSON body; bytes go as they are."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._client.post(path, content=raw, headers={"content-type": "application/json"})

    def whole(self, path: str, **fields: object) -> JsonObject:
        """The answer to a request that is not streamed."""
        response = self.post(path, fields)
        assert response.status_code == 200, response.text[:500]
        body: JsonObject = response.json()
        return body

    def events(self, path: str, **fields: object) -> list[JsonObject]:
        """The events of a stream, checked to end in [DONE]."""
        response = self.post(path, {**fields, "stream": True})
        assert response.status_code == 200, response.text[:500]
        return decode_events(response.content)

    def complete(self, prompt: object, **fields: object) -> Answer:
        """Complete greedily, whole and streamed; the answers must be equal."""
        return self._both(COMPLETIONS, {"prompt": prompt, **fields})

    def chat(self, messages: Sequence[object] | str, **fields: object) -> Answer:
        """Chat greedily, whole and streamed; a text is one user message."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self._both(CHAT, {"messages": list(messages), **fields})

    def refused(self, path: str, body: Mapping[str, object] | bytes) -> JsonObject:
        """The error of a request that must be refused with 400, streamed or not."""
        error = error_of(self.post(path, body))
        if not isinstance(body, bytes):
            # What is streamed is refused before the stream begins, not inside it.
            assert error_of(self.post(path, {**body, "stream": True}))["code"] == error["code"]
        return error

    def metric(self, name: str, **labels: str) -> float:
        """One sample of /metrics; 0 when it is absent."""
        for line in self.get("/metrics").text.splitlines():
            sample, _, value = line.rpartition(" ")
            found, _, rest = sample.partition("{")
            wanted = all(f'{key}="{text}"' in rest for key, text in labels.items())
            if found == f"pegainfer:{name}" and wanted:
                return float(value)
        return 0.0

    def load(self) -> tuple[float, float, float]:
        """Requests running, requests waiting, KV pages that they hold."""
        text = self.get("/metrics").text
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_used_pages")
        values = {}
        for line in text.splitlines():
            sample, _, value = line.rpartition(" ")
            values[sample.partition("{")[0].removeprefix("pegainfer:")] = value
        running, waiting, pages = (float(values.get(name, 0)) for name in names)
        return running, waiting, pages

    def wait_idle(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until nothing runs, waits, or holds KV pages."""
        self.wait_for(lambda: self.load() == (0, 0, 0), timeout_s)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, f"not so within {timeout_s} s: {self.load()}"
            time.sleep(0.01)

    @contextlib.contextmanager
    def unharmed(self, probe: JsonObject = PROBE) -> Iterator[None]:
        """Nothing that happens in the block may leave a trace in the server.

        Args:
            probe: The same for every block of one server.
        """
        if self._probed is None:
            self._probed = self.probe(probe)
        yield
        self.wait_idle()
        assert self.probe(probe) == self._probed
        self.wait_idle()

    def probe(self, probe: JsonObject = PROBE) -> object:
        """The answer to a fixed greedy request."""
        choice = self.whole(COMPLETIONS, **probe)["choices"][0]
        return choice["token_ids"], choice["text"], choice["finish_reason"]

    def _both(self, path: str, fields: JsonObject) -> Answer:
        fields = {"temperature": 0, **fields}
        body = self.whole(path, **fields)
        chunks = self.events(path, **fields, stream_options={"include_usage": True})
        *parts, last = chunks
        assert last["choices"] == []
        assert counts_of(last["usage"]) == counts_of(body["usage"])
        choices = [part["choices"][0] for part in parts]
        choice = body["choices"][0]
        if path == CHAT:
            assert choices[0]["delta"]["role"] == choice["message"]["role"] == "assistant"
            text, deltas = _check_message(choice["message"], [part["delta"] for part in choices])
        else:
            text, deltas = choice["text"], [part["text"] for part in choices]
        assert "".join(deltas) == text
        assert [part["finish_reason"] for part in choices[:-1]] == [None] * (len(choices) - 1)
        for name in ("finish_reason", "stop_reason"):
            assert choices[-1][name] == choice[name]
        if "token_ids" in choice:
            assert [i for part in choices for i in part.get("token_ids", [])] == choice["token_ids"]
        return Answer(text, deltas, body, chunks)


def decode_events(content: bytes) -> list[JsonObject]:
    """Split a stream at empty lines, as hand-written clients do."""
    assert content.endswith(b"data: [DONE]\n\n"), content[-200:]
    blocks = content.removesuffix(b"data: [DONE]\n\n").split(b"\n\n")
    assert blocks.pop() == b""
    return [json.loads(block.removeprefix(b"data: ")) for block in blocks]


def error_of(response: httpx.Response, status: int = 400) -> JsonObject:
    """The error in a response that must have this status."""
    assert response.status_code == status, response.text[:500]
    error: JsonObject = response.json()["error"]
    assert error["message"] and error["type"]
    return error


def counts_of(usage: JsonObject) -> JsonObject:
    """Usage without the share that came from the cache, which an equal request before changes."""
    return {name: value for name, value in usage.items() if name != "prompt_tokens_details"}


def _check_message(message: JsonObject, deltas: list[JsonObject]) -> tuple[str, list[str]]:
    """The content of a message and its pieces; what else it holds must be the same streamed."""
    for name in ("reasoning_content", "reasoning"):
        assert "".join(delta.get(name, "") for delta in deltas) == (message[name] or "")
    calls: dict[int, list[str]] = {}
    for piece in (piece for delta in deltas for piece in delta.get("tool_calls", [])):
        function = piece["function"]
        entry = calls.setdefault(piece["index"], [function.get("name", ""), ""])
        entry[1] += function["arguments"]
    whole = [call["function"] for call in message["tool_calls"] or []]
    assert list(calls.values()) == [[call["name"], call["arguments"]] for call in whole]
    return message["content"] or "", [delta.get("content", "") for delta in deltas]
