"""Puts a Qwen3 engine together: weights, KV pages, model, runner, scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.engine import (
    AdapterTable,
    BuiltEngine,
    DecoderRunner,
    LocalEngine,
    engine_info,
    fitted_plan,
    launch_local,
    max_logit_rows,
    max_step_tokens,
    open_grammars,
    open_offload,
    open_pages,
    open_parameters,
)
from pegainfer_core.kv import open_kv
from pegainfer_core.lora import LoraSlots, num_lora_slots
from pegainfer_core.sampling import make_step_sampler
from pegainfer_core.weights import load_config, unread_names
from pegainfer_qwen3.config import parse_config
from pegainfer_qwen3.lora import lora_layout
from pegainfer_qwen3.model import Qwen3Model
from pegainfer_qwen3.scheduler import Qwen3Scheduler
from pegainfer_qwen3.state import kv_layout
from pegainfer_qwen3.weights import load_weights, model_specs

if TYPE_CHECKING:
    from pegainfer_core.backend import Backend, DType, KvPool
    from pegainfer_core.contract import LaunchContext, ServePlan
    from pegainfer_core.sampling import StepSampler
    from pegainfer_qwen3.config import Qwen3Config
    from pegainfer_qwen3.weights import Qwen3Weights


def launch(context: LaunchContext, plan: ServePlan) -> LocalEngine:
    """Load the checkpoint and start its engine in this process; returns once it is ready.

    Raises:
        ConfigError: The checkpoint is at fault.
    """
    return launch_local(context, plan, lambda backend: _build(context, plan, backend))


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
    options = context.options
    config = parse_config(load_config(Path(context.model_dir)))
    specs, unread = model_specs(config), unread_names(tied=config.tied)
    with open_parameters(context, backend, specs, config.dtype, unread) as (loader, dtype):
        weights = load_weights(loader, config, backend, dtype)
    layout = kv_layout(config, plan.page_tokens, dtype)
    slots = _lora_slots(context, plan, config, backend, dtype)
    workspace = backend.workspace(max_step_tokens(plan), plan.max_model_len)
    layers = slots.layers if slots else None
    model = Qwen3Model(config, weights, backend, dtype, workspace, max_logit_rows(plan), layers)
    backend.prepare_decoder(model.shape, config.hidden_size, config.intermediate_size, layout)
    sampler = make_step_sampler(backend, plan.vocab_size, plan.max_num_seqs, options.seed)
    kv = open_pages(model, backend, layout, plan, options)
    adapters = None
    if slots is not None:
        adapters = AdapterTable(slots, lora_layout(config), options.max_lora_rank)
    return LoadedModel(model, weights, kv, sampler, adapters)


def _lora_slots(
    context: LaunchContext, plan: ServePlan, config: Qwen3Config, backend: Backend, dtype: DType
) -> LoraSlots | None:
    if not plan.capabilities.lora:
        return None
    num_slots, max_rank = num_lora_slots(context.options), context.options.max_lora_rank
    return LoraSlots(backend, lora_layout(config), num_slots, max_rank, dtype)


def _build(context: LaunchContext, plan: ServePlan, backend: Backend) -> BuiltEngine:
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
