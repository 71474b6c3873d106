"""Host libraries of the CUDA C++ kernels: their PTX is replaced by what `simt.h` does instead."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pegainfer_core.kernels.spec import source_path

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADER: Final = Path(__file__).parent / "simt.h"
_SHARED: Final = "extern __shared__ __align__(1024) unsigned char shared[];"
_PACK: Final = "return to_half(low) | to_half(high) << 16;"

_DECODE: Final = {
    "shared_address": "return simt::offset(at);",
    "wait": "simt::wait(simt::offset(barrier), parity);",
    "copy_keys": "simt::copy_box(to, map, simt::offset(barrier),"
    " {channel, head, token, plane, page});",
    "load_matrices": "simt::load_matrices(to, at, false);",
    "load_turned": "simt::load_matrices(to, at, true);",
    "multiply": "simt::multiply(d, a, b0, b1);",
    "power": "return exp2f(x);",
    "packed": _PACK,
}
_DECODE_INLINE: Final = {
    r'asm volatile\("mbarrier\.init.*?\);': "simt::init(simt::offset(full + lane), 1);",
    r'asm volatile\("mbarrier\.arrive\.expect_tx.*?"memory"\);': "simt::arrive("
    "simt::offset(barrier), STAGE_BYTES);",
    r'asm volatile\("(?:fence|griddepcontrol).*?"memory"\);': "",
}
_DECODE_RUN: Final = """
extern "C" void run(
    const bf16 *qkv, const bf16 *norm, const bf16 *cos, const bf16 *sin, const void *map,
    bf16 *pages, const int *items, const int *num_items, const int *table, float *partial,
    float *stats, int *counters, bf16 *out, int stride, long long page_stride, int num_kv_heads,
    int layer, float scale, float eps, int grid, int seed) {
    simt::chance.seed(seed);
    std::vector<int> order(grid * num_kv_heads);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), simt::chance);
    simt::body = [=] {
        decode_pages(qkv, norm, cos, sin, map, pages, items, num_items, table, partial, stats,
                     counters, out, stride, page_stride, num_kv_heads, layer, scale, eps);
    };
    for (int i : order) {
        blockIdx = {i % grid, i / grid};
        simt::run_block(WARPS * 32);
    }
}
"""

_PREFILL: Final = {
    "shared_address": "return simt::offset(at);",
    "init": "simt::init(simt::offset(barrier), count);",
    "arrive": "simt::arrive(simt::offset(barrier));",
    "expect": "simt::arrive(simt::offset(barrier), bytes);",
    "wait": "simt::wait(simt::offset(barrier), parity);",
    "copy_page": "simt::copy_box(to, map, simt::offset(barrier), {channel, head, 0, plane, page});",
    "copy_queries": "simt::copy_box(to, map, simt::offset(barrier), {channel, head, token});",
    "acquire_map": "",
    "sync_named": "simt::pass(simt::named_gates[ID], THREADS);",
    "mma_fence": "",
    "mma_commit": "",
    "mma_wait": "",
    "pin": "",
    "mma_shared": "simt::multiply_shared(d, a, b, adds);",
    "mma_weights_128": "simt::multiply_weights(d + AT, 64, a, b);",
    "mma_weights_64": "simt::multiply_weights(d, 32, a, b);",
    "packed": _PACK,
    "power": "return exp2f(x);",
}
_PREFILL_INLINE: Final = {
    r'asm volatile\("st\.shared.*?"memory"\);': "memset(shared + at, 0, 16);",
    r'asm volatile\("bar\.sync %0, 128;".*?"memory"\);': "simt::pass(simt::named_gates[id], 128);",
    r'asm volatile\("(?:fence|setmaxnreg)[^;]*;".*?\);': "",
}
_PREFILL_RUN: Final = """
extern "C" void run(
    const void *q_map, const void *kv_map, const int *items, const int *num_items, const int *table,
    float *sums, float *stats, int *joined, int *state, bf16 *out, int num_kv_heads, int layer,
    float scale, int grid, int seed) {
    simt::chance.seed(seed);
    gridDim = {grid, 1};
    simt::body = [=] {
        attend_tiles_wgmma(q_map, kv_map, items, num_items, table, sums, stats, joined, state, out,
                           num_kv_heads, layer, scale);
    };
    for (int i = 0; i < grid; ++i) {
        blockIdx = {i, 0};
        simt::run_block(384);
    }
}
"""

_FEW_ROWS: Final = {
    "shared_address": "return simt::offset(at);",
    "wait_copies": "simt::wait_copies(PENDING);",
    "copy": "simt::copy(to, from);",
    "commit": "simt::commit();",
    "let_next_in": "",
    "wait_for_others": "",
    "load_shared": "return *(const uint4 *)(simt::memory + at);",
    "load_row": "return *(const uint4 *)at;",
    "packed": _PACK,
    "product_of": "return packed(low(a) * low(b), high(a) * high(b));",
    "multiply": "simt::multiply(d, {a.x, a.y, a.z, a.w}, b0, b1);",
    "arrive_cluster": "simt::arrive_cluster();",
    "wait_cluster": "simt::wait_cluster();",
    "address_in": "return simt::offset_in(simt::offset(at), rank);",
}
_FEW_ROWS_INLINE: Final = {
    r'asm volatile\("st\.shared::cluster\.f32.*?"memory"\);': "memcpy(simt::memory"
    " + address_in(to, rank), &value, sizeof value);",
    r'asm volatile\("st\.shared::cluster\.v2\.f32.*?"memory"\);': "memcpy(simt::memory"
    " + address_in(to, rank), &v, sizeof v);",
    r'asm volatile\("" : "\+r"\(two\)\);': "",
}
_FEW_ROWS_RUN: Final = """
extern "C" void run(const char *x, const char *scale, const char *weight, u16 *out, int rows,
                    int num_outputs, float eps, int teams, int seed) {
    simt::chance.seed(seed);
    gridDim = {teams * SPLIT, 1};
    simt::body = [=] { few_rows(x, scale, weight, out, rows, num_outputs, eps); };
    for (int team = 0; team < teams; ++team) {
        blockIdx = {team * SPLIT, 0};
        simt::run_block(THREADS, SPLIT);
    }
}
"""

_SCAN: Final = {
    "shared_address": "return simt::offset(at);",
    "init": "simt::init(simt::offset(barrier), count);",
    "arrive": "simt::arrive(simt::offset(barrier));",
    "expect": "simt::arrive(simt::offset(barrier), bytes);",
    "wait": "simt::wait(simt::offset(barrier), parity);",
    "copy_tile": "simt::copy_box(to, map, simt::offset(barrier), {column, token});",
    "copy_word": "memcpy((void *)to, from, 4);",
    "arrive_copied": "simt::arrive(simt::offset(barrier));",
    "acquire_map": "",
    "sync_computing": "simt::pass(simt::named_gates[1], COMPUTING);",
    "show_others": "",
    "mma_fence": "",
    "mma_commit": "",
    "mma_wait": "",
    "pin": "",
    "keep_before": "",
    "multiply_by_rows": "simt::multiply_rows(d, 32, a, b, adds);",
    "multiply_by_columns": "simt::multiply_weights(d, 64, a, b);",
    "two_halves": "return to_float16(low) | to_float16(high) << 16;",
    "rounded": _PACK,
    "store_turned": "simt::store_turned(at, a, b, c, d);",
}
_SCAN_INLINE: Final = {r'asm volatile\("fence\.mbarrier.*?"memory"\);': ""}
_SCAN_RUN: Final = """
extern "C" void run(
    const int *pieces, const int *row_pieces, const void *queries, const void *keys,
    const void *reads, const void *writes, const void *scores, const float *decays,
    const float *query_factors, const float *key_factors, float *states, u16 *out,
    int num_key_heads, int num_heads, long long slot_stride, int rows, int seed) {
    simt::chance.seed(seed);
    simt::widened = of_float16;
    simt::body = [=] {
        scan_pieces(pieces, row_pieces, queries, keys, reads, writes, scores, decays, query_factors,
                    key_factors, states, out, num_key_heads, num_heads, slot_stride);
    };
    for (int i = 0; i < rows * num_heads * (VALUE_DIM / CHANNELS); ++i) {
        blockIdx = {i % (rows * num_heads), i / (rows * num_heads)};
        simt::run_block(COMPUTING + 32);
    }
}
"""


def decode_pages(folder: Path, **constants: int) -> ctypes.CDLL:
    """Decode attention; `run` takes the kernel's arguments, the grid's width and a seed."""
    source = _replaced("decode_pages.cu", _DECODE, _DECODE_INLINE)
    return _built(folder, source + _DECODE_RUN, constants)


def prefill_wgmma(folder: Path, **constants: int) -> ctypes.CDLL:
    """Prefill attention; `run` takes the kernel's arguments, the grid and a seed."""
    source = _replaced("prefill_wgmma.cu", _PREFILL, _PREFILL_INLINE)
    return _built(folder, source + _PREFILL_RUN, constants)


def few_rows(folder: Path, **constants: int) -> ctypes.CDLL:
    """Products of few rows; `run` takes the kernel's arguments, the teams and a seed."""
    source = _replaced("few_rows.cu", _FEW_ROWS, _FEW_ROWS_INLINE)
    return _built(folder, source + _FEW_ROWS_RUN, constants)


def scan_pieces(folder: Path, **constants: int) -> ctypes.CDLL:
    """The delta rule from piece to piece; `run` takes the kernel's arguments, rows and a seed."""
    return _built(folder, _replaced("scan_pieces.cu", _SCAN, _SCAN_INLINE) + _SCAN_RUN, constants)


def _replaced(module: str, bodies: Mapping[str, str], inline: Mapping[str, str]) -> str:
    """The source with functions' bodies and single statements replaced; no PTX is left."""
    text = source_path(module).read_text().replace(_SHARED, "")
    for name, body in bodies.items():
        text = _with_body(text, name, body)
    for pattern, statement in inline.items():
        text = re.sub(pattern, statement, text, flags=re.DOTALL)
    assert "asm" not in text, text[text.index("asm") :][:200]
    return text


def _with_body(text: str, name: str, body: str) -> str:
    """Every overload of a helper gets this body; it ends on its own line or with a brace alone."""
    head = re.compile(rf"__device__ __forceinline__ [\w ]+ {name}\([^{{]*\{{")
    assert head.search(text), name
    at = 0
    while found := head.search(text, at):
        line_end = text.index("\n", found.end())
        one_line = text[found.end() : line_end].rstrip().endswith("}")
        end = line_end if one_line else text.index("\n}", found.end()) + 2
        text = f"{text[: found.end()]} {body} }}{text[end:]}"
        at = found.end()
    return text


def _built(folder: Path, text: str, constants: Mapping[str, int]) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ to compile kernels for the host")
    name = "_".join(str(value) for value in constants.values())
    source, target = folder / f"{name}.cpp", folder / f"{name}.so"
    macros = "".join(f"#define {key} {value}\n" for key, value in constants.items())
    source.write_text(f'#include "{_HEADER}"\n{macros}{text}')
    command = [compiler, "-std=c++17", "-O2", "-w", "-shared", "-fPIC", "-o", target, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(target))
