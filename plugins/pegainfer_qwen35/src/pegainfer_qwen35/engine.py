"""Puts a Qwen3.5 engine together: weights, states, KV pages, model, runner, scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from pegainfer_core.engine import (
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
    widened_plan,
)
from pegainfer_core.kv import SnapshotSpec, open_kv
from pegainfer_core.sampling import make_step_sampler
from pegainfer_core.weights import load_config, unread_names
from pegainfer_qwen35.config import parse_config
from pegainfer_qwen35.model import Qwen35Model
from pegainfer_qwen35.options import Qwen35Options
from pegainfer_qwen35.scheduler import Qwen35Scheduler
from pegainfer_qwen35.snapshots import SnapshotPlanner
from pegainfer_qwen35.state import kv_layout, num_snapshots, state_layout
from pegainfer_qwen35.weights import OTHER_PARTS, WeightReader, model_specs

if TYPE_CHECKING:
    from pegainfer_core.backend import Backend, KvPool
    from pegainfer_core.contract import LaunchContext, ServePlan
    from pegainfer_core.sampling import StepSampler
    from pegainfer_qwen35.weights import Qwen35Weights

PREFILL_TOKENS: Final = 24_576
"""Most prompt tokens in a step where memory allows. Bursts of prompts stop the requests that decode
once instead of three times, at the price of their own first tokens' mean: with 64 clients 7.0 ms a
token and 607 ms to the first, instead of 7.8 and 380 (docs/benchmarks/h200-qwen35.md)."""


def launch(context: LaunchContext, plan: ServePlan) -> LocalEngine:
    """Load the checkpoint and start its engine in this process; returns once it is ready.

    Raises:
        ConfigError: The checkpoint is at fault.
    """
    return launch_local(context, plan, lambda backend: _build(context, plan, backend))


class LoadedModel(NamedTuple):
    """A model on its backend, the KV pages it writes, what chooses its tokens, and its plan."""

    model: Qwen35Model
    weights: Qwen35Weights
    kv: KvPool
    sampler: StepSampler
    num_snapshots: int
    plan: ServePlan


def load_model(context: LaunchContext, plan: ServePlan, backend: Backend) -> LoadedModel:
    """Load a checkpoint onto a backend, with room for the plan's steps, larger ones where it may.

    Raises:
        ConfigError: The checkpoint is at fault.
    """
    options = context.options
    config = parse_config(load_config(Path(context.model_dir)))
    specs, unread = model_specs(config), unread_names(*OTHER_PARTS, tied=config.tied)
    with open_parameters(context, backend, specs, config.dtype, unread) as (loader, dtype):
        weights = WeightReader(loader, config, backend, dtype).read_all()
    plan = widened_plan(plan, options, backend, PREFILL_TOKENS)
    own = msgspec.convert(context.family_options, Qwen35Options)
    states_layout = state_layout(config, dtype)
    num_saved = num_snapshots(states_layout, options, own, plan.backend)
    # Before the pages are sized: every request needs a state, and pages take what is left.
    states = backend.state_pool(states_layout, plan.max_num_seqs + num_saved)
    layout = kv_layout(config, plan.page_tokens, dtype)
    workspace = backend.workspace(max_step_tokens(plan), plan.max_model_len)
    rows = max_logit_rows(plan)
    model = Qwen35Model(config, weights, backend, dtype, workspace, states, rows)
    backend.prepare_decoder(model.shape, config.hidden_size, config.intermediate_size, layout)
    backend.prepare_recurrent(
        model.delta_shape, config.hidden_size, states_layout, config.rope.rotary_dim
    )
    sampler = make_step_sampler(backend, plan.vocab_size, plan.max_num_seqs, options.seed)
    kv = open_pages(model, backend, layout, plan, options)
    return LoadedModel(model, weights, kv, sampler, num_saved, plan)


def _build(context: LaunchContext, plan: ServePlan, backend: Backend) -> BuiltEngine:
    options = context.options
    loaded = load_model(context, plan, backend)
    kv_pages, states = loaded.kv, loaded.model.states
    held = kv_pages.num_pages - 1
    plan = fitted_plan(loaded.plan, kv_pages.layout, held, options.max_model_len)
    runner = DecoderRunner(loaded.model, backend, kv_pages, loaded.sampler, plan, states)
    runner.warm_up()
    spec = SnapshotSpec(num_slots=loaded.num_snapshots, every_tokens=plan.page_tokens)
    kv = open_kv(kv_pages.num_pages, plan.page_tokens, options, snapshots=[spec])
    snapshots = SnapshotPlanner(kv, first_slot=plan.max_num_seqs)
    grammars = open_grammars(context, plan)
    offload = open_offload(
        context, backend, kv_pages, kv, states=states, first_snapshot=plan.max_num_seqs
    )
    scheduler = Qwen35Scheduler(
        runner, kv, plan, snapshots, options.kv_reserve, offload=offload, grammars=grammars
    )
    return BuiltEngine(scheduler, engine_info(context, plan, kv), grammars=grammars)
