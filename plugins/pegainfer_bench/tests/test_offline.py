"""`bench latency`, `throughput`, `startup` and `kernels` end to end, on small models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pegainfer_bench.kernels import DecoderSizes, decoder
from pegainfer_bench.startup import evict, read_through, resident_share, weight_files

from plugins.pegainfer_bench.tests.conftest import ROOT, Bench

SAMPLE = ROOT / "samples" / "qwen3-sample"


def test_latency(bench: Bench, echo: Path, tmp_path: Path) -> None:
    out = tmp_path / "latency.json"
    done = bench(
        "latency", echo, "--input-len", 8, "--output-len", 5, "--batch-size", 3, "--num-iters", 4,
        "--num-iters-warmup", 1, "--echo-decode-ms", 2, "--output-json", out,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "3 x 8 tokens in, 5 out, on echo: 4 batches" in done.out
    result = json.loads(out.read_text())
    assert len(result["latencies"]) == 4 and min(result["latencies"]) >= 0.008
    assert result["avg_latency"] == pytest.approx(sum(result["latencies"]) / 4)
    # The first token can be seen late, and the rest then takes the less.
    assert 1e3 * result["avg_first_token"] + 4 * result["mean_tpot_ms"] >= 8 - 1e-6


def test_latency_with_a_real_model(bench: Bench) -> None:
    done = bench("latency", SAMPLE, "--input-len", 4, "--output-len", 2, "--batch-size", 2,
                 "--num-iters", 1, "--num-iters-warmup", 0, "--max-model-len", 64)  # fmt: skip
    assert done.code == 0, done.err
    assert "on numpy: 1 batches" in done.out and "output tokens/s" in done.out


def test_throughput(bench: Bench, echo: Path, tmp_path: Path) -> None:
    out = tmp_path / "throughput.json"
    words = "--num-prompts 7 --input-len 8 --output-len 5".split()
    done = bench("throughput", echo, *words, "--output-json", out)
    assert done.code == 0, done.err
    result = json.loads(out.read_text())
    assert result["num_requests"] == 7 and result["total_num_tokens"] == 7 * 13
    assert result["tokens_per_second"] == pytest.approx(7 * 13 / result["elapsed_time"])
    assert "Total prompt tokens: 56, output tokens: 35" in done.out


def test_throughput_of_a_file(bench: Bench, echo: Path, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"prompt": "abcd", "output_tokens": 3}\n{"prompt": [1, 2]}\n')
    words = ("--dataset-name", "custom", "--dataset-path", path, "--num-prompts", 2)
    done = bench("throughput", echo, *words, "--output-len", 4)
    assert done.code == 0, done.err
    assert "Total prompt tokens: 6, output tokens: 7" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("latency --input-len 5000", "more than the 4096 of this model; lower --input-len"),
        ("latency --batch-size 999", "--batch-size 999 is more than the 256 requests"),
        ("latency --num-iters 0", "--num-iters 0: expected"),
        ("throughput --input-len 9999 --num-prompts 1", "more than the 4096 of this model"),
        ("throughput --dataset-name sharegpt", "needs --dataset-path FILE"),
        ("startup --input-len 4096", "--input-len 4096 leaves no room in 4096 tokens"),
        ("startup --page-cache hot", "expected one of cold, warm"),
    ],
)
def test_bad_input(bench: Bench, echo: Path, words: str, message: str) -> None:
    command, *rest = words.split()
    done = bench(command, echo, *rest)
    assert done.code == 2 and message in done.err and done.err.count("\n") == 1, done.err


def test_startup(bench: Bench, echo: Path, tmp_path: Path) -> None:
    out = tmp_path / "startup.json"
    done = bench("startup", echo, "--num-starts", 1, "--page-cache", "cold", "--max-model-len", 99,
                 "--echo-prefill-ms", 5, "--output-json", out)  # fmt: skip
    assert done.code == 0, done.err
    (start,) = json.loads(out.read_text())["starts"]
    assert 0 < start["import_s"] < start["ready_s"] < start["first_token_s"]
    assert start["first_request_s"] >= 0.005
    assert start["load_s"] == pytest.approx(start["ready_s"] - start["import_s"])
    assert len(start["processes"]) == 2
    total = sum(process["pss_mib"] for process in start["processes"])
    assert start["pss_mib"] == pytest.approx(total) and total > 20
    assert "PSS after a request MiB" in done.out


def test_a_start_that_fails_says_why(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "echo", "vocab_size": 261, "max_position_embeddings": 64}'
    )
    done = bench("startup", tmp_path, "--num-starts", 1)
    assert done.code == 2 and done.err.count("\n") == 1
    assert "the server ended with status 2 before it was ready" in done.err
    assert "tokenizer.json" in done.err


def test_the_page_cache_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(1 << 20))
    (tmp_path / "empty").touch()
    files = weight_files(tmp_path)
    assert files == [path]
    read_through(files)
    assert resident_share(files) == 1.0
    evict(files)
    assert 0.0 <= resident_share(files) <= 1.0


KERNELS = "--backend numpy --rotate-mib 1 --min-time 0.001 --rows 1,3 --prefill 20".split()


def test_kernels_on_numpy(bench: Bench, tmp_path: Path) -> None:
    out = tmp_path / "kernels.json"
    done = bench("kernels", SAMPLE, *KERNELS, "--attention", "2x40", "--output-json", out)
    assert done.code == 0, done.err
    assert "measured limits: read " in done.out and "of limit" in done.out
    result = json.loads(out.read_text())
    rows = {(row["op"], row["size"]): row for row in result["ops"]}
    products = {"qkv", "out", "gate_up", "down"}
    assert {op for op, size in rows if size == "3 rows"} == products | {"norm", "lm_head", "argmax"}
    assert {op for op, size in rows if size == "2 x 40"} == {"qkv + attend", "layer"}
    wide = products | {"attend", "qkv + attend", "layer"}
    assert {op for op, size in rows if size == "prefill 20"} == wide
    limits = result["limits"]
    for row in result["ops"]:
        least_s = max(
            row["bytes"] / limits["read_bytes_per_s"], row["flops"] / limits["flops_per_s"]
        )
        assert row["time_us"] > 0 and row["limit_us"] == pytest.approx(1e6 * least_s)
    # 160 wide, 4 + 2 + 2 heads of 32: parameters, then 3 rows in and out, four bytes each.
    assert rows["qkv", "3 rows"]["bytes"] == 4 * (256 * 160 + 3 * (160 + 256))
    assert rows["qkv", "3 rows"]["flops"] == 2 * 3 * 256 * 160
    # Two rows see 40 positions each, of 2 heads' keys and values in bfloat16.
    seen = rows["qkv + attend", "2 x 40"]["bytes"] - 4 * (256 * 160 + 2 * (160 + 256))
    assert seen == 2 * 40 * 2 * 2 * 32 * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--rows 0", "--rows 0: '0' is not a number from 1 to 256"),
        ("--rows 1,", "'' is not a number from 1 to 256"),
        ("--attention 8", "'8' is not ROWSxCONTEXT"),
        ("--attention 999x5", "'999' is not a number from 1 to 256"),
        ("--prefill 1", "'1' is not a number from 2 to"),
        ("--backend tpu", "expected one of cuda, numpy"),
        ("/nowhere --backend numpy", "/nowhere"),
    ],
)
def test_kernels_bad_input(bench: Bench, words: str, message: str) -> None:
    done = bench("kernels", *words.split())
    assert done.code == 2 and message in done.err and done.err.count("\n") == 1, done.err


def test_the_read_rate_without_a_kernel_that_only_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_READ_SHAPE", (4, 1 << 16))
    made = decoder.DecoderBench(
        "numpy",
        DecoderSizes.from_model(str(SAMPLE)),
        device=0,
        num_threads=None,
        max_tokens=16,
        max_rows=4,
        max_context=16,
        rotate_bytes=1,
        min_time_s=0.001,
    )
    try:
        assert made.read_rate() > 1e8
    finally:
        made.close()


@pytest.mark.gpu
def test_kernels_on_a_gpu(bench: Bench, tmp_path: Path) -> None:
    out = tmp_path / "kernels.json"
    done = bench("kernels", "--rows", "1,64", "--attention", "8x1024", "--prefill", "512",
                 "--output-json", out)  # fmt: skip
    assert done.code == 0, done.err
    result = json.loads(out.read_text())
    limits = result["limits"]
    assert limits["read_bytes_per_s"] > limits["copy_bytes_per_s"] / 2 > 5e10
    for row in result["ops"]:
        # Nothing beats the device by more than the two measurements differ.
        assert row["op"] == "argmax" or row["limit_us"] / row["time_us"] < 1.1, row
    (layer,) = [row for row in result["ops"] if (row["op"], row["size"]) == ("layer", "8 x 1024")]
    assert layer["limit_us"] / layer["time_us"] > 0.2


def test_kernels_without_a_gpu() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pegainfer_core.cli.main", "bench", "kernels"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert "no NVIDIA GPU was found" in done.stderr and done.stderr.count("\n") == 1
