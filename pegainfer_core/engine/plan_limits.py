"""Limits that a decoder with paged KV can serve within: context, pages, prompt tokens a step.

Knows sizes and options, no family's config. Light: plans are made with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.contract import EngineCapabilities, ServePlan
from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from pegainfer_core.backend import Backend, BackendName, KvLayout
    from pegainfer_core.contract import CoreOptions

DEFAULT_POOL_BYTES: Final = 2 << 30
"""Most memory of a KV pool whose size nobody gave; the system hands it out as pages are used."""

_MIN_POOL_TOKENS: Final = 1 << 15
_CONTEXTS_IN_POOL: Final = 4

_STEP_S: Final = 0.49
"""Time that the prompt tokens of one step may take, so that a step stays below half a second."""

# Measured on two AVX2 cores: a matrix product repacks its weights, whatever the number of rows,
# and then computes at the rate of a large product.
_REPACK_S: Final = 0.5e-9
"""Seconds for each weight."""
_FLOPS: Final = 80e9
"""Floating-point operations a second."""

_MIN_PREFILL_TOKENS: Final = 8
_CUDA_PREFILL_TOKENS: Final = 8192
_MAX_PREFILL_TOKENS: Final = 2048
_ROOMY_BYTES: Final = 96 << 30
"""Free behind the weights: then buffers of larger steps take less than a tenth of it. A 27B model
on one H200 has less, and its recurrent states and KV need it more."""


def decoder_plan(
    options: CoreOptions,
    backend: BackendName,
    layout: KvLayout,
    *,
    vocab_size: int,
    context_tokens: int,
    layer_matrix_values: int,
    limit_keys: str = "max_position_embeddings",
    structured: bool = False,
) -> ServePlan:
    """The plan that options ask for; same input, same plan.

    Args:
        options: The core's.
        backend: Where the model will run.
        layout: Of the KV pages.
        vocab_size: Rows of the embedding.
        context_tokens: Longest context the model allows.
        layer_matrix_values: Values in the matrices of all layers.
        limit_keys: What in config.json says so, for messages.
        structured: Whether the engine holds answers to grammars.

    Raises:
        ConfigError: An option makes serving impossible.
    """
    max_model_len, num_pages, notes = _context_and_pages(
        options, backend, layout, context_tokens, limit_keys
    )
    return ServePlan(
        max_model_len=max_model_len,
        vocab_size=vocab_size,
        backend=backend,
        page_tokens=options.kv_page_size,
        num_pages=num_pages,
        max_num_seqs=options.max_num_seqs,
        max_prefill_tokens=_max_prefill_tokens(options, backend, layer_matrix_values),
        itl_target_s=_itl_target_s(options),
        capabilities=EngineCapabilities(structured=structured),
        notes=notes,
    )


def default_num_pages(layout: KvLayout, context_tokens: int) -> int:
    """Pages for four full contexts, or as many as `DEFAULT_POOL_BYTES` holds."""
    wanted = max(_CONTEXTS_IN_POOL * context_tokens, _MIN_POOL_TOKENS)
    return max(min(layout.pages_for(wanted), DEFAULT_POOL_BYTES // layout.page_bytes), 1)


def fitted_plan(plan: ServePlan, layout: KvLayout, num_pages: int, asked: int | None) -> ServePlan:
    """The plan with the context that the pages hold.

    Args:
        plan: Made before the memory was measured.
        layout: Of the pages.
        num_pages: Pages there are.
        asked: The option `--max-model-len`.

    Raises:
        ConfigError: A longer context was asked for.
    """
    held = num_pages * layout.page_tokens
    if plan.max_model_len <= held:
        return plan
    if asked is not None:
        raise ConfigError(
            f"--max-model-len {asked} needs {layout.pages_for(asked)} KV pages of "
            f"{layout.page_bytes / 2**20:.2f} MiB, but only {num_pages} fit into the GPU's memory "
            f"at this --gpu-memory-utilization; lower it to {held}"
        )
    return msgspec.structs.replace(plan, max_model_len=held)


def widened_plan(plan: ServePlan, options: CoreOptions, backend: Backend, tokens: int) -> ServePlan:
    """The plan with larger prefill steps, where memory is no concern and nobody chose sizes.

    Args:
        plan: Made before the weights were loaded.
        options: The core's; their size of a step or number of KV pages leaves the plan as it is.
        backend: Holds the weights, and neither buffers of steps nor KV pages yet.
        tokens: Most prompt tokens in a step that the family would rather have.
    """
    chosen = options.max_prefill_tokens is not None or options.num_kv_pages is not None
    free = backend.free_bytes(options.gpu_memory_utilization)
    if chosen or free is None or free < _ROOMY_BYTES:
        return plan
    return msgspec.structs.replace(plan, max_prefill_tokens=tokens)


def _context_and_pages(
    options: CoreOptions,
    backend: BackendName,
    layout: KvLayout,
    limit: int,
    limit_keys: str,
) -> tuple[int, int | None, list[str]]:
    """Context in tokens, pages that requests can use, and what to tell about them.

    Without a given number, CUDA takes as many pages as fit once the weights are loaded: None.
    """
    asked = options.max_model_len
    if asked is not None and not 2 <= asked <= limit:
        raise ConfigError(
            f"--max-model-len {asked} must be from 2 to {limit}: the config's {limit_keys} "
            "allow no more"
        )
    context_tokens = limit if asked is None else asked
    num_pages = options.num_kv_pages
    if num_pages is None and backend == "cuda":
        return context_tokens, None, []
    if num_pages is None:
        num_pages = default_num_pages(layout, context_tokens)
        if asked is not None:
            num_pages = max(num_pages, layout.pages_for(asked))
    elif num_pages < 1:
        raise ConfigError(f"--num-kv-pages {num_pages} must be at least 1")
    held = num_pages * layout.page_tokens
    if context_tokens <= held:
        return context_tokens, num_pages, []
    if asked is not None:
        raise ConfigError(
            f"--max-model-len {asked} needs {layout.pages_for(asked)} KV pages of "
            f"{layout.page_tokens} tokens, but --num-kv-pages is {num_pages}; raise it or lower "
            f"--max-model-len to {held}"
        )
    pool_gib = num_pages * layout.page_bytes / 2**30
    note = (
        f"context limited to {held} tokens (the model allows {limit}): {num_pages} KV pages, "
        f"{pool_gib:.1f} GiB; --max-model-len or --num-kv-pages changes that"
    )
    return held, num_pages, [note]


def _itl_target_s(options: CoreOptions) -> float | None:
    target_ms = options.itl_target_ms
    if target_ms is None:
        return None
    if not target_ms > 0:
        raise ConfigError(f"--itl-target-ms {target_ms} must be more than 0")
    return target_ms / 1e3


def _max_prefill_tokens(
    options: CoreOptions, backend: BackendName, layer_matrix_values: int
) -> int:
    asked = options.max_prefill_tokens
    if asked is not None:
        if asked < 1:
            raise ConfigError(f"--max-prefill-tokens {asked} must be at least 1")
        return asked
    if backend == "cuda":
        return _CUDA_PREFILL_TOKENS
    seconds_a_weight = _STEP_S / layer_matrix_values
    affordable = int((seconds_a_weight - _REPACK_S) * _FLOPS / 2)
    rounded = affordable // _MIN_PREFILL_TOKENS * _MIN_PREFILL_TOKENS
    return min(max(rounded, _MIN_PREFILL_TOKENS), _MAX_PREFILL_TOKENS)
