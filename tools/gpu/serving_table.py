"""Runs the whole serving table of a benchmark page against a server: `serving_table.py [ROW ...]`.

Each row is one run of `tools/bench/load.py` with prompts of its own. Rows by name: single, c1 to
c256, cold128 to cold16384, warm1024 to warm16384, poisson8 to poisson96; a prefix such as `c` or
`poisson` stands for all of its kind. `--pid` adds the resident memory of a server's processes.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

LOAD = Path(__file__).parents[1] / "bench" / "load.py"
CONCURRENCIES = (1, 8, 16, 32, 64, 128, 256)
COLD_TOKENS = (128, 1024, 4096, 16384)
RATES = (8, 16, 32, 48, 64, 96)
HEAD = (
    f"{'row':12} {'ok':>4} {'bad':>3} {'tok/s':>7} {'TTFT':>8} {'p99':>8} {'TPOT':>7} {'ITL 50':>7}"
    f" {'99':>7} {'cached':>7}"
)


def all_rows() -> dict[str, list[str]]:
    """Arguments of the load client, by row."""
    rows = {"single": ["--num=4", "--input-len=1", "--output-len=256", "--warmup=1"]}
    for count in CONCURRENCIES:
        num = {1: 3, 128: 256, 256: 512}.get(count, 3 * count)
        size = ["--input-len=1024", "--output-len=256", f"--warmup={min(count, 64)}"]
        rows[f"c{count}"] = [f"--num={num}", f"--concurrency={count}", *size]
    for tokens in COLD_TOKENS:
        one = [f"--input-len={tokens}", "--output-len=2"]
        rows[f"cold{tokens}"] = ["--num=6", *one, "--warmup=1"]
        if tokens > COLD_TOKENS[0]:
            rows[f"warm{tokens}"] = ["--num=4", *one, "--repeat", "--warmup=1"]
    for rate in RATES:
        size = ["--input-len=1024", "--output-len=128", "--warmup=8"]
        rows[f"poisson{rate}"] = [f"--num={max(6 * rate, 96)}", f"--rate={rate}", *size]
    return rows


def run_row(url: str, model: str, name: str, arguments: list[str], seed: int) -> dict[str, object]:
    """One run of the client."""
    command = [sys.executable, str(LOAD), f"--url={url}", f"--model={model}", f"--name={name}"]
    done = subprocess.run(
        [*command, f"--seed={seed}", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-500:]}")
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


def line(row: dict[str, object]) -> str:
    """A row of the table."""
    return (
        f"{row['name']:12} {row['ok']:4} {row['failed']:3} {row['out_tok_s']:7} "
        f"{row['ttft_mean']!s:>8} {row['ttft_p99']!s:>8} {row['tpot_mean']!s:>7} "
        f"{row['itl_p50']!s:>7} {row['itl_p99']!s:>7} {row['cached']:7} {row['err']}"
    )


def pss_mib(pid: int) -> float:
    """Resident memory of a process and its children, shared pages divided among their users."""
    children = subprocess.run(
        ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
    )
    total = sum(pss_mib(int(child)) for child in children.stdout.split())
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss: +(\d+)", rollup, re.MULTILINE)
    return total + (int(found[1]) / 1024 if found else 0.0)


def model_of(url: str) -> str:
    """The model that a server serves."""
    command = ["curl", "-s", f"{url}/v1/models"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)["data"][0]["id"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--pid", type=int, help="of the server, for its memory")
    parser.add_argument("--out", type=Path, help="JSON of all rows")
    args = parser.parse_args()
    rows = all_rows()
    chosen = [
        n for n in rows if not args.rows or n in args.rows or n.rstrip("0123456789") in args.rows
    ]
    model, found = model_of(args.url), []
    print(HEAD, flush=True)
    for seed, name in enumerate(rows, 100):
        if name in chosen:
            found.append(run_row(args.url, model, name, rows[name], seed))
            print(line(found[-1]), flush=True)
    if args.pid:
        time.sleep(2)
        print(f"resident memory of all processes: {pss_mib(args.pid):.0f} MiB")
    if args.out:
        args.out.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
