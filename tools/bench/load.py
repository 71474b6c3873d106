#!/usr/bin/env python3
"""Drive any OpenAI-compatible /v1/completions server and report latencies: one client for all.

Prompts are random token ids (no tokeniser in the client), outputs are forced to full length
(ignore_eos, temperature 0). TTFT: send to first event with text or token. TPOT: (last - first) /
(tokens - 1), tokens from usage. ITL: gaps between events. Needs aiohttp.
"""

import argparse
import asyncio
import json
import random
import statistics
import time

import aiohttp


def pct(v, p):
    v = sorted(v)
    if not v:
        return float("nan")
    k = (len(v) - 1) * p / 100
    f = int(k)
    c = min(f + 1, len(v) - 1)
    return v[f] + (v[c] - v[f]) * (k - f)


async def one(sess, url, model, prompt, out_len, rec):
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": out_len,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    t0 = time.perf_counter()
    first = last = None
    gaps = []
    usage = None
    nev = 0
    try:
        async with sess.post(url + "/v1/completions", json=body) as r:
            if r.status != 200:
                rec.append({"ok": False, "err": f"{r.status} {(await r.text())[:300]}"})
                return
            async for line in r.content:
                if not line.startswith(b"data:"):
                    continue
                d = line[5:].strip()
                if d == b"[DONE]":
                    break
                now = time.perf_counter()
                o = json.loads(d)
                if o.get("usage"):
                    usage = o["usage"]
                if o.get("error"):
                    rec.append({"ok": False, "err": str(o["error"])[:300]})
                    return
                if o.get("choices"):
                    nev += 1
                    if first is None:
                        first = now
                    else:
                        gaps.append(now - last)
                    last = now
    except Exception as e:  # report, never hide
        rec.append({"ok": False, "err": repr(e)[:300]})
        return
    n = (usage or {}).get("completion_tokens", nev)
    rec.append(
        {
            "ok": first is not None,
            "err": "" if first is not None else "no event",
            "ttft": (first or 0) - t0,
            "e2e": (last or 0) - t0,
            "n": n,
            "nin": (usage or {}).get("prompt_tokens"),
            "cached": ((usage or {}).get("prompt_tokens_details") or {}).get("cached_tokens"),
            "tpot": ((last - first) / (n - 1)) if first and n > 1 else None,
            "itl": gaps,
        }
    )


def summary(rec, dur, name):
    ok = [r for r in rec if r["ok"]]
    bad = [r for r in rec if not r["ok"]]
    tt = [r["ttft"] * 1e3 for r in ok]
    tp = [r["tpot"] * 1e3 for r in ok if r["tpot"] is not None]
    itl = [g * 1e3 for r in ok for g in r["itl"]]
    out = sum(r["n"] for r in ok)
    inn = sum(r["nin"] or 0 for r in ok)
    return {
        "name": name,
        "ok": len(ok),
        "failed": len(bad),
        "err": bad[0]["err"] if bad else "",
        "dur_s": round(dur, 3),
        "in_tok": inn,
        "out_tok": out,
        "out_tok_s": round(out / dur, 1),
        "req_s": round(len(ok) / dur, 3),
        "ttft_mean": round(statistics.fmean(tt), 2) if tt else None,
        "ttft_p50": round(pct(tt, 50), 2),
        "ttft_p99": round(pct(tt, 99), 2),
        "tpot_mean": round(statistics.fmean(tp), 3) if tp else None,
        "tpot_p50": round(pct(tp, 50), 3),
        "tpot_p99": round(pct(tp, 99), 3),
        "itl_p50": round(pct(itl, 50), 3),
        "itl_p99": round(pct(itl, 99), 3),
        "cached": sum(r["cached"] or 0 for r in ok),
    }


async def run(a):
    rng = random.Random(a.seed)
    shared = [rng.randrange(a.vocab_lo, a.vocab_hi) for _ in range(a.shared_prefix)]
    prompts = [
        shared
        + [rng.randrange(a.vocab_lo, a.vocab_hi) for _ in range(a.input_len - a.shared_prefix)]
        for _ in range(a.num)
    ]
    rec = []
    to = aiohttp.ClientTimeout(total=a.timeout)
    async with aiohttp.ClientSession(timeout=to, connector=aiohttp.TCPConnector(limit=0)) as s:
        if a.warmup:
            w = []
            await asyncio.gather(
                *[
                    one(
                        s,
                        a.url,
                        a.model,
                        [rng.randrange(a.vocab_lo, a.vocab_hi) for _ in range(a.input_len)],
                        min(a.output_len, 16),
                        w,
                    )
                    for _ in range(a.warmup)
                ]
            )
        if a.repeat:  # send each prompt twice, measure the second
            junk = []
            for p in prompts:
                await one(s, a.url, a.model, p, 1, junk)
                if a.settle:
                    await asyncio.sleep(a.settle)
                if (
                    a.between_url
                ):  # e.g. drop the device cache so that the second send restores from the host tier
                    async with s.post(a.url + a.between_url) as r:
                        await r.read()
                await one(s, a.url, a.model, p, a.output_len, rec)
            return summary(rec, 1e9, a.name)
        t0 = time.perf_counter()
        if a.rate:
            tasks = []
            for p in prompts:
                tasks.append(asyncio.create_task(one(s, a.url, a.model, p, a.output_len, rec)))
                await asyncio.sleep(rng.expovariate(a.rate))
            await asyncio.gather(*tasks)
        else:
            it = iter(prompts)

            async def worker():
                for p in it:
                    await one(s, a.url, a.model, p, a.output_len, rec)

            await asyncio.gather(*[worker() for _ in range(a.concurrency)])
        return summary(rec, time.perf_counter() - t0, a.name)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--url", default="http://127.0.0.1:8000")
    p.add_argument("--model", default="m")
    p.add_argument("--name", default="")
    p.add_argument("--input-len", type=int, default=1024)
    p.add_argument("--output-len", type=int, default=128)
    p.add_argument("--num", type=int, default=32)
    p.add_argument("--concurrency", type=int, default=1)
    p.add_argument("--rate", type=float, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--shared-prefix", type=int, default=0)
    p.add_argument("--repeat", action="store_true")
    p.add_argument("--settle", type=float, default=0)
    p.add_argument("--between-url", default="")
    p.add_argument("--warmup", type=int, default=0)
    p.add_argument("--timeout", type=float, default=300)
    p.add_argument("--vocab-lo", type=int, default=1000)
    p.add_argument("--vocab-hi", type=int, default=100000)
    a = p.parse_args()
    try:
        import uvloop

        uvloop.install()
    except ImportError:
        pass
    print(json.dumps(asyncio.run(run(a))), flush=True)


if __name__ == "__main__":
    main()
