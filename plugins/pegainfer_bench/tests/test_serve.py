"""`bench serve` as a command: reports, files, sweeps, plots, and what it says of bad input."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from plugins.pegainfer_bench.tests.conftest import Bench
from plugins.pegainfer_bench.tests.scripted_server import (
    DONE,
    ScriptedServer,
    Step,
    chunked,
    event,
    token,
    usage,
    whole,
)

SMALL = "--num-prompts 6 --random-input-len 8 --random-output-len 3".split()


def test_a_report(bench: Bench, server: ScriptedServer) -> None:
    done = bench("serve", "--port", server.port, *SMALL, "--max-concurrency", 2)
    assert done.code == 0, done.err
    assert "Successful requests:                     6\n" in done.out
    assert "Total input tokens:                      48\n" in done.out
    assert "Total generated tokens:                  18\n" in done.out
    for line in ("Mean TTFT", "Median TPOT", "P99 ITL", "Peak output token throughput"):
        assert line in done.out
    assert {body["model"] for body in server.bodies} == {"m"}


def test_results_are_written(bench: Bench, server: ScriptedServer, tmp_path: Path) -> None:
    done = bench(
        "serve", "--base-url", server.url + "/", "--model", "n", *SMALL, "--request-rate", 500,
        "--save-detailed", "--result-dir", tmp_path, "--label", "us", "--num-warmups", 2,
        "--metric-percentiles", "50,99",
    )  # fmt: skip
    assert done.code == 0, done.err
    (path,) = tmp_path.glob("us-*.json")
    result = json.loads(path.read_text())
    assert result["completed"] == 6 and result["label"] == "us" and result["model_id"] == "n"
    assert result["request_rate"] == 500 and result["p50_itl_ms"] is not None
    assert len(result["requests"]) == 6 and result["requests"][0]["output_tokens"] == 3
    assert len(server.bodies) == 8


def test_fields_of_requests(
    bench: Bench, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, echo: Path
) -> None:
    words = "--temperature 0.5 --top-p 0.9 --top-k 5 --no-ignore-eos --logprobs 2".split()
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")

    def serve(*more: object) -> dict[str, Any]:
        server.bodies.clear()
        from pegainfer_core.cli.main import main

        argv = ["bench", "serve", "--port", server.port, *SMALL, *words, *more]
        assert main(list(map(str, argv))) == 0
        return server.bodies[0]

    body = serve("--extra-body", '{"min_tokens": 3}', "--header", "X-Trace=a=b")
    assert body["temperature"] == 0.5 and body["top_p"] == 0.9 and body["top_k"] == 5
    assert body["logprobs"] == 2 and body["min_tokens"] == 3 and "ignore_eos" not in body
    assert b"Authorization: Bearer sesame" in server.heads[0]
    assert b"X-Trace: a=b" in server.heads[0]
    chat = serve("--endpoint", "/v1/chat/completions", "--tokenizer", echo)
    assert chat["messages"][0]["role"] == "user" and chat["messages"][0]["content"]
    assert chat["logprobs"] is True and chat["top_logprobs"] == 2 and "prompt" not in chat


def test_failures_and_short_answers_are_reported(bench: Bench, server: ScriptedServer) -> None:
    def answer(body: dict[str, Any]) -> list[Step]:
        match len(server.bodies) % 3:
            case 0:
                return whole(b'{"error": {"message": "no room"}}', "503 Busy")
            case 1:
                return chunked([token(), event(error={"message": "engine died"})])
            case _:
                return chunked([token(), usage(8, 1), DONE])

    server.answer = answer
    done = bench("serve", "--port", server.port, *SMALL, "--max-concurrency", 1)
    assert done.code == 1
    assert "Failed requests:                         4\n" in done.out
    assert "failed (2): HTTP 503: no room" in done.out
    assert "failed (2): engine died" in done.out
    assert "2 requests got fewer tokens than asked for; the first of them 1 of 3" in done.out


def test_ids_beyond_the_vocabulary_get_a_hint(bench: Bench, echo_url: str) -> None:
    done = bench("serve", "--base-url", echo_url, *SMALL)
    assert done.code == 1 and "failed (1): HTTP 400: token id" in done.out
    assert "--random-vocab-high N keeps random ids inside" in done.err


def test_a_sweep_and_its_plot(bench: Bench, server: ScriptedServer, tmp_path: Path) -> None:
    plot, result = tmp_path / "sweep.png", tmp_path / "sweep.json"
    done = bench(
        "serve", "--port", server.port, *SMALL, "--sweep-concurrency", "1,2,16",
        "--num-prompts-factor", 2, "--plot", plot, "--result-dir", tmp_path,
        "--result-filename", result.name,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "\nconcurrency 16:\n" in done.out
    runs = json.loads(result.read_text())["runs"]
    assert [run["max_concurrency"] for run in runs] == [1, 2, 16]
    assert [run["completed"] for run in runs] == [2, 4, 32]
    assert plot.read_bytes().startswith(b"\x89PNG")
    prompts = [tuple(body["prompt"]) for body in server.bodies]
    assert len(set(prompts)) == len(prompts) == 38
    again = tmp_path / "again.png"
    done = bench("plot", result, result, "--output", again)
    assert done.code == 0 and "6 runs drawn" in done.out
    assert again.read_bytes().startswith(b"\x89PNG")


def test_a_sweep_over_rates_prints_json_lines(bench: Bench, server: ScriptedServer) -> None:
    done = bench("serve", "--port", server.port, *SMALL, "--sweep-rate", "200,300", "--json")
    assert done.code == 0, done.err
    rates = [json.loads(line)["request_rate"] for line in done.out.splitlines()]
    assert rates == [200, 300]


def test_datasets_are_sent(bench: Bench, server: ScriptedServer, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"prompt": "one", "output_tokens": 2}\n{"prompt": [4, 5]}\n')
    words = ("--dataset-name", "custom", "--dataset-path", path, "--custom-output-len", 4)
    done = bench("serve", "--port", server.port, "--num-prompts", 2, *words)
    assert done.code == 0, done.err
    sent = sorted((body["max_tokens"], body["prompt"]) for body in server.bodies)
    assert sent == [(2, "one"), (4, [4, 5])]
    assert "ignore_eos" not in server.bodies[0]


MODELS = {
    "empty": whole(b'{"data": []}'),
    "missing": whole(b'{"detail": "Not Found"}', "404 Not Found"),
    "locked": whole(b"", "401 Unauthorized"),
    "loading": whole(b'{"error": {"message": "still loading"}}', "503 Busy"),
}


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("empty", "names no model (HTTP 200"),
        ("missing", "names no model (HTTP 404"),
        ("locked", "asks for an API key (HTTP 401)"),
        ("loading", "is not ready (HTTP 503: still loading)"),
    ],
)
def test_a_server_that_serves_nothing(
    bench: Bench, server: ScriptedServer, models: str, message: str
) -> None:
    server.models = MODELS[models]
    done = bench("serve", "--port", server.port, *SMALL)
    assert done.code == 2 and message in done.err and done.err.count("\n") == 1


def test_a_server_without_a_list_of_models_is_taken_at_the_users_word(
    bench: Bench, server: ScriptedServer
) -> None:
    server.models = MODELS["missing"]
    done = bench("serve", "--port", server.port, *SMALL, "--model", "mine")
    assert done.code == 0 and server.bodies[0]["model"] == "mine"


def test_a_server_that_is_not_there(bench: Bench, server: ScriptedServer) -> None:
    done = bench("serve", "--port", 1, *SMALL, "--ready-check-timeout", 0.3)
    assert done.code == 2 and "http://127.0.0.1:1 cannot be reached" in done.err
    assert done.err.count("\n") == 1
    done = bench("serve", "--base-url", "http://no-such-host.invalid", *SMALL)
    assert done.code == 2 and "cannot be reached" in done.err and done.err.count("\n") == 1


BAD_FLAGS = {
    "--model absent": "--model absent is not served by http://127.0.0.1:{port}; it serves m, n",
    "--num-prompts 0": "--num-prompts 0: expected `int` >= 1",
    "--port 99999": "--port 99999: expected",
    "--request-rate 0": "--request-rate 0: expected",
    "--request-rate nan": "--request-rate nan: expected",
    "--burstiness -1": "--burstiness -1: expected",
    "--max-concurrency 0": "--max-concurrency 0: expected",
    "--random-input-len 0": "--random-input-len 0: expected",
    "--random-range-ratio 1": "--random-range-ratio 1: expected",
    "--random-vocab-low 5 --random-vocab-high 5": "--random-vocab-low 5 must be below",
    "--percentile-metrics ttft,x": "'x' is not one of ttft, tpot, itl, e2el",
    "--metric-percentiles 200": "'200' is not a percentile from 0 to 100",
    "--goodput ttft": "--goodput ttft: expected",
    "--extra-body [1]": "--extra-body [1]: Expected `object`",
    "--header novalue": "--header 'novalue': expected NAME=VALUE",
    "--base-url ftp://x": "--base-url ftp://x: expected http://HOST:PORT",
    "--base-url http://x:port": "--base-url http://x:port: ",
    "--endpoint v1/completions": "--endpoint v1/completions: expected a path",
    "--tokenizer /nowhere": "--tokenizer /nowhere: ",
    "--dataset-name news": "--dataset-name news: expected one of custom, random, sharegpt",
    "--dataset-name custom": "--dataset-name custom needs --dataset-path FILE",
    "--dataset-name sharegpt --dataset-path x": "needs --tokenizer DIR to count",
    "--dataset-path x": "--dataset-path x needs --dataset-name sharegpt or custom",
    "--dataset-name custom --dataset-path /nowhere": "--dataset-path /nowhere cannot be read",
    "--endpoint /v1/chat/completions": "a chat endpoint takes texts, not token ids",
    "--sweep-concurrency 1,x": "'x' is not a whole number above 0",
    "--sweep-concurrency 1.5": "'1.5' is not a whole number above 0",
    "--sweep-rate 0": "'0' is not a number above 0",
    "--sweep-rate 1 --sweep-concurrency 1": "not both",
    "--num-prompts-factor 2": "--num-prompts-factor needs --sweep-concurrency",
    "--plot out.png": "--plot needs a load to draw over: --max-concurrency, --request-rate or",
    "--plot out.pdf": "--plot out.pdf: the file must end in .png",
    "--plot /nowhere/out.png": "--plot /nowhere/out.png: there is no folder /nowhere",
    "--save-result --result-dir /nowhere": "--result-dir /nowhere is no folder",
    "--ignore-eos=maybe": "--ignore-eos=maybe: expected true or false",
    "--temprature 1": "unknown flag --temprature; did you mean --temperature?",
}


@pytest.mark.parametrize("words", BAD_FLAGS)
def test_a_bad_flag_gives_one_clear_line(bench: Bench, server: ScriptedServer, words: str) -> None:
    done = bench("serve", *([] if "--base-url" in words or "--port" in words else
                            ["--port", server.port]), *SMALL, *words.split())  # fmt: skip
    assert done.code == 2 and done.out == ""
    expected = BAD_FLAGS[words].format(port=server.port).replace("`", "")
    assert expected in done.err.replace("`", "") and done.err.count("\n") == 1, done.err
    assert not server.bodies


def test_without_matplotlib(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "matplotlib" else found(name, *more),
    )
    for words in (["serve", "--plot", "x.png"], ["plot", "x.json"]):
        done = bench(*words)
        assert done.code == 2 and "pip install 'pegainfer[bench]'" in done.err
        assert done.err.count("\n") == 1


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"runs": []}', "text", '{"a": 1}'])
def test_plotting_what_is_no_result(bench: Bench, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "result.json"
    if content is not None:
        path.write_text(content)
    done = bench("plot", path, "--output", tmp_path / "x.png")
    assert done.code == 2 and str(path) in done.err and done.err.count("\n") == 1


def test_plots_need_a_load(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    row = {"output_throughput": 5.0}
    path.write_text(json.dumps(row))
    done = bench("plot", path, "--output", tmp_path / "x.png")
    assert done.code == 2 and "neither a request rate nor a maximum concurrency" in done.err
    path.write_text(
        json.dumps({"runs": [{**row, "request_rate": 3}, {**row, "max_concurrency": 1}]})
    )
    done = bench("plot", path, "--output", tmp_path / "x.png")
    assert done.code == 2 and "plot them apart" in done.err


def test_bench_alone_lists_what_there_is() -> None:
    from pegainfer_core.cli.main import main

    for words in (["bench"], ["bench", "sevre"]):
        assert main(words) == 2
