"""Puts a Qwen3 engine together: weights, KV pages, model, runner, scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.backend import make_backend
from pegainfer_core.engine import (
    AdapterTable,
    BuiltEngine,
    DecoderRunner,
    LocalEngine,
    engine_info,
    fitted_plan,
    lay_out,
    max_logit_rows,
    max_step_tokens,
    open_grammars,
    open_offload,
)
from pegainfer_core.kv import open_kv
from pegainfer_core.lora import LoraSlots, num_lora_slots
from pegainfer_core.sampling import make_step_sampler
from pegainfer_core.weights import (
    ParameterLoader,
    compute_dtype,
    load_config,
    loading_bar,
    open_source,
    text_tensor_name,
)
from pegainfer_qwen3.config import parse_config
from pegainfer_qwen3.lora import lora_layout
from pegainfer_qwen3.model import Qwen3Model
from pegainfer_qwen3.scheduler import Qwen3Scheduler
from pegainfer_qwen3.state import kv_layout
from pegainfer_qwen3.weights import ignored_names, load_weights, model_specs

if TYPE_CHECKING:
    from pegainfer_core.backend import Backend, KvPool
    from pegainfer_core.contract import LaunchContext, ServePlan
    from pegainfer_core.sampling import StepSampler
    from pegainfer_qwen3.weights import Qwen3Weights


def launch(context: LaunchContext, plan: ServePlan) -> LocalEngine:
    """Load the checkpoint and start its engine in this process; returns once it is ready.

    Raises:
        ConfigError: The checkpoint is at fault.
    """
    return LocalEngine(lambda: _build(context, plan))


class LoadedModel(NamedTuple):
    """A model on its backend, the KV pages it writes, what chooses its tokens, its adapters."""

    model: Qwen3Model
    weights: Qwen3Weights
    kv: KvPool
    sampler: StepSampler
    adapters: AdapterTable | None = None


def load_model(context: LaunchContext, plan: ServePlan, backend: Backend) -> LoadedModel:
    """Load a checkpoint onto a backend, with room for the plan's steps.

    Raises:
        ConfigError: The checkpoint is at fault.
    """
    raw_config = load_config(Path(context.model_dir))
    config = parse_config(raw_config)
    specs = model_specs(config)
    with open_source(context, specs, config.dtype) as source, loading_bar() as progress:
        dtype = backend.compute_dtype(compute_dtype(raw_config, source))
        loader = ParameterLoader(
            source,
            specs,
            dtype=dtype.value,
            rename=text_tensor_name,
            ignore=ignored_names(config),
            progress=progress,
        )
        backend.begin_loading(loader)
        weights = load_weights(loader, config, backend, dtype)
    layout = kv_layout(config, plan.page_tokens, dtype)
    options = context.options
    slots = None
    if plan.capabilities.lora:
        num_slots, max_rank = num_lora_slots(options), options.max_lora_rank
        slots = LoraSlots(backend, lora_layout(config), num_slots, max_rank, dtype)
    workspace = backend.workspace(max_step_tokens(plan), plan.max_model_len)
    layers = slots.layers if slots else None
    model = Qwen3Model(config, weights, backend, dtype, workspace, max_logit_rows(plan), layers)
    backend.prepare_decoder(model.shape, config.hidden_size, config.intermediate_size, layout)
    sampler = make_step_sampler(backend, plan.vocab_size, plan.max_num_seqs, options.seed)
    num_pages = plan.num_pages
    if num_pages is None:
        # What steps need is taken before the pages get the rest.
        lay_out(model, backend, backend.kv_pool(layout, 0), plan)
        num_pages = backend.fitting_pages(layout, options.gpu_memory_utilization)
    adapters = None
    if slots is not None:
        adapters = AdapterTable(slots, lora_layout(config), options.max_lora_rank)
    return LoadedModel(model, weights, backend.kv_pool(layout, num_pages), sampler, adapters)


def _build(context: LaunchContext, plan: ServePlan) -> BuiltEngine:
    backend = make_backend(plan.backend, context.options, context.threads)
    try:
        return _build_on(backend, context, plan)
    except BaseException:
        backend.close()
        raise


def _build_on(backend: Backend, context: LaunchContext, plan: ServePlan) -> BuiltEngine:
    options = context.options
    loaded = load_model(context, plan, backend)
    num_pages = loaded.kv.num_pages - 1
    plan = fitted_plan(plan, loaded.kv.layout, num_pages, options.max_model_len)
    if loaded.adapters is not None:
        loaded.adapters.load_at_start(options)
    runner = DecoderRunner(loaded.model, backend, loaded.kv, loaded.sampler, plan)
    runner.warm_up()
    kv = open_kv(loaded.kv.num_pages, plan.page_tokens, options)
    offload = open_offload(context, backend, loaded.kv, kv)
    grammars = open_grammars(context, plan)
    scheduler = Qwen3Scheduler(
        runner,
        kv,
        plan,
        options.kv_reserve,
        offload=offload,
        adapters=loaded.adapters,
        grammars=grammars,
    )
    info = engine_info(context, plan, kv, loaded.adapters)
    return BuiltEngine(scheduler, info, loaded.adapters, grammars)
