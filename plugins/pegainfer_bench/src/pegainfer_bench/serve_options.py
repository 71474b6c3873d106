"""Flags of `pegainfer bench serve`, named as `vllm bench serve` names them. Light."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_FILE = {"metavar": "FILE"}
_DIR = {"metavar": "DIR"}
_Count = Annotated[int, Meta(ge=1)]


class ServeBenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which server, what load, which figures."""

    base_url: Annotated[
        str | None,
        Meta(description="http(s)://HOST:PORT of the server (default: from --host and --port)"),
    ] = None
    host: Annotated[str, Meta(description="host of the server")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65535, description="port of the server")] = 8000
    endpoint: Annotated[
        str, Meta(description="path to post to; one that ends in /chat/completions sends messages")
    ] = "/v1/completions"
    model: Annotated[
        str | None, Meta(description="name of the model (default: the server's first)")
    ] = None
    header: Annotated[list[str], Meta(description="HTTP header NAME=VALUE; may be repeated")] = []
    tokenizer: Annotated[
        str | None,
        Meta(description="folder with tokenizer.json, to count or make texts", extra=_DIR),
    ] = None
    label: Annotated[str, Meta(description="name of the run in results and plots")] = ""

    dataset_name: Annotated[
        Literal["random", "sharegpt", "custom"],
        Meta(description="random token ids, ShareGPT conversations, or JSON lines"),
    ] = "random"
    dataset_path: Annotated[
        str | None, Meta(description="file of a sharegpt or custom dataset", extra=_FILE)
    ] = None
    num_prompts: Annotated[int, Meta(ge=1, description="requests to send")] = 1000
    num_prompts_factor: Annotated[
        _Count | None,
        Meta(description="in a sweep over concurrency, send this many requests a client instead"),
    ] = None
    seed: Annotated[int, Meta(description="of prompts, lengths and arrivals")] = 0
    random_input_len: Annotated[int, Meta(ge=1, description="tokens of a random prompt")] = 1024
    random_output_len: Annotated[
        int, Meta(ge=1, description="tokens to generate for a random prompt")
    ] = 128
    random_range_ratio: Annotated[
        float, Meta(ge=0, lt=1, description="draw both lengths from (1 - r) to (1 + r) times those")
    ] = 0.0
    random_prefix_len: Annotated[
        int, Meta(ge=0, description="tokens before each random prompt, equal for all")
    ] = 0
    random_vocab_low: Annotated[int, Meta(ge=0, description="smallest random token id")] = 1000
    random_vocab_high: Annotated[
        int, Meta(ge=1, description="random token ids stay below this")
    ] = 100_000
    sharegpt_output_len: Annotated[
        _Count | None,
        Meta(description="tokens to generate (default: as many as the dataset's answer has)"),
    ] = None
    custom_output_len: Annotated[
        int, Meta(ge=1, description="tokens to generate where a line has no output_tokens")
    ] = 256

    request_rate: Annotated[
        float, Meta(gt=0, description="requests a second; inf sends all at once")
    ] = float("inf")
    burstiness: Annotated[
        float, Meta(gt=0, description="shape of the gamma-distributed gaps; 1 is a Poisson process")
    ] = 1.0
    max_concurrency: Annotated[
        _Count | None, Meta(description="most requests under way at once")
    ] = None
    num_warmups: Annotated[
        int, Meta(ge=0, description="requests sent and forgotten before the run")
    ] = 0
    timeout: Annotated[float, Meta(gt=0, description="seconds until a request has failed")] = 600.0
    ready_check_timeout: Annotated[
        float, Meta(ge=0, description="seconds to wait for the server to come up")
    ] = 0.0

    ignore_eos: Annotated[
        bool | None,
        Meta(description="generate the whole length (default: on for random prompts)"),
    ] = None
    temperature: Annotated[float, Meta(ge=0, description="0 is greedy")] = 0.0
    top_p: Annotated[float | None, Meta(description="sampling parameter")] = None
    top_k: Annotated[int | None, Meta(description="sampling parameter")] = None
    min_p: Annotated[float | None, Meta(description="sampling parameter")] = None
    frequency_penalty: Annotated[float | None, Meta(description="sampling parameter")] = None
    presence_penalty: Annotated[float | None, Meta(description="sampling parameter")] = None
    repetition_penalty: Annotated[float | None, Meta(description="sampling parameter")] = None
    logprobs: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="log-probabilities a token")
    ] = None
    extra_body: Annotated[
        str | None, Meta(description="JSON object with further fields of each request")
    ] = None

    percentile_metrics: Annotated[
        str, Meta(description="figures to show: ttft, tpot, itl, e2el, separated by commas")
    ] = "ttft,tpot,itl"
    metric_percentiles: Annotated[
        str, Meta(description="percentiles to show, separated by commas")
    ] = "99"
    goodput: Annotated[
        list[str],
        Meta(description="limit such as ttft:500 (ms) that a good request keeps; may be repeated"),
    ] = []

    sweep_concurrency: Annotated[
        str | None, Meta(description="a run for each concurrency, such as 1,8,64")
    ] = None
    sweep_rate: Annotated[
        str | None, Meta(description="a run for each request rate, such as 1,4,16")
    ] = None
    plot: Annotated[
        str | None, Meta(description="draw the runs into this PNG; needs matplotlib", extra=_FILE)
    ] = None
    json: Annotated[bool, Meta(description="print one JSON line a run instead of tables")] = False
    save_result: Annotated[bool, Meta(description="write the result as JSON")] = False
    save_detailed: Annotated[bool, Meta(description="with every request's own figures")] = False
    result_dir: Annotated[str, Meta(description="folder to write to", extra=_DIR)] = "."
    result_filename: Annotated[
        str | None, Meta(description="file to write (default: named by time and load)", extra=_FILE)
    ] = None

    @property
    def is_chat(self) -> bool:
        """Whether requests hold messages."""
        return self.endpoint.rstrip("/").endswith("/chat/completions")
