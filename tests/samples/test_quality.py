"""The measures of the quality check see what they are for, without a model."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from samples.generation import Generation, ServerGenerator
from samples.quality import distinct_share, judge, known_word_share, report
from samples.words import WORD_LIST, read_words, words_of, write_words
from tokenizers import Tokenizer

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "qwen3-sample"
GOOD = "The people of this country are proud of the sea and of the ships that sail upon it."


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(SAMPLE / "tokenizer.json"))


@pytest.fixture(scope="module")
def known() -> frozenset[str]:
    return read_words(WORD_LIST)


def chat(text: str, finish_reason: str = "stop") -> Generation:
    return Generation(prompt="Hello.", text=text, finish_reason=finish_reason)


def test_distinct_share_counts_four_grams():
    assert distinct_share([1, 2, 3, 4, 5, 6]) == 1.0
    assert distinct_share([7] * 13) == 0.1
    assert distinct_share([1, 2]) == 1.0


def test_words_keep_inner_apostrophes_and_leave_numbers_out():
    assert words_of("Don't, 'tis the ship's 3rd mate—Starbuck!") == [
        "don't",
        "tis",
        "the",
        "ship's",
        "rd",
        "mate",
        "starbuck",
    ]


def test_the_word_list_has_the_corpus_words(known, tmp_path):
    assert {"whale", "ishmael", "congress", "romeo", "the"} <= known
    assert "transformer" not in known and len(known) > 30_000
    write_words(["a", "b"], tmp_path / "words.gz")
    assert read_words(tmp_path / "words.gz") == {"a", "b"}


def test_a_good_chat_passes(tokenizer, known):
    text, passed = report([judge("chat", chat(GOOD), tokenizer, known)])
    assert passed and "PASS" in text


@pytest.mark.parametrize(
    ("kind", "generation", "fault"),
    [
        ("chat", chat(GOOD, "length"), "not 'stop'"),
        ("chat", chat(""), "only 0 words"),
        ("chat", chat("it is so; " * 40), "distinct 4-grams"),
        ("completion", chat("It is so."), "tokens"),
    ],
)
def test_each_fault_is_named_and_fails_the_check(tokenizer, known, kind, generation, fault):
    judged = judge(kind, generation, tokenizer, known)
    assert any(fault in found for found in judged.faults)
    assert not report([judged])[1]


def test_completions_that_mostly_end_early_fail_the_check(tokenizer, known):
    judged = judge("completion", chat(GOOD), tokenizer, known)
    assert judged.faults == [] and not report([judged])[1]


def test_invented_words_fail_the_check(tokenizer, known):
    judged = judge("chat", chat("The blorgish whale is frumply in the sea."), tokenizer, known)
    assert judged.faults == [] and known_word_share([judged]) == 6 / 8
    assert not report([judged])[1]


def test_the_last_word_of_a_cut_text_is_not_judged(tokenizer, known):
    judged = judge("completion", chat("The whale is in the oce", "length"), tokenizer, known)
    assert (judged.num_words, judged.num_known_words) == (5, 5)


class _Server(BaseHTTPRequestHandler):
    bodies: ClassVar[list[tuple[str, dict]]] = []

    def _answer(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self._answer({"data": [{"id": "sample"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append((self.path, body))
        choice = {"finish_reason": "stop", "text": "T", "message": {"content": "C"}}
        self._answer({"choices": [choice]})

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_server_is_asked_for_greedy_text_and_its_own_penalty():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        generator = ServerGenerator(f"http://127.0.0.1:{server.server_port}/v1/")
        completion, answer = generator.complete("Once", 5), generator.chat("Hello", 6)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert (completion.text, answer.text, answer.finish_reason) == ("T", "C", "stop")
    assert _Server.bodies == [
        (
            "/v1/completions",
            {"model": "sample", "prompt": "Once", "max_tokens": 5, "temperature": 0},
        ),
        (
            "/v1/chat/completions",
            {
                "model": "sample",
                "messages": [{"role": "user", "content": "Hello"}],
                "max_tokens": 6,
                "temperature": 0,
            },
        ),
    ]
