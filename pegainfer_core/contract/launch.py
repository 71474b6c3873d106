"""What a family is launched with: the core's options and the plan made from them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pegainfer_core.contract.engine import EngineCapabilities


class CoreOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options that core parses for every family; a family says which of them it honours.

    Each field is a CLI flag of the same name with dashes (`prefix_cache` is `--no-prefix-cache`).
    """

    backend: Annotated[
        Literal["auto", "numpy", "cuda"],
        Meta(description="where the model runs; auto takes CUDA when a driver is present"),
    ] = "auto"
    max_model_len: Annotated[
        int | None, Meta(description="longest prompt plus output in tokens (default: the model's)")
    ] = None
    max_num_seqs: Annotated[int, Meta(ge=1, description="most requests in one step")] = 256
    max_prefill_tokens: Annotated[
        int | None, Meta(description="most prompt tokens in one step (default: by the backend)")
    ] = None
    itl_target_ms: Annotated[
        float | None,
        Meta(description="gap between a request's tokens to hold, sizing chunks (default: none)"),
    ] = None
    gpu_memory_utilization: Annotated[
        float, Meta(gt=0, le=1, description="share of the GPU's total memory to use")
    ] = 0.9
    kv_page_size: Annotated[Literal[16, 32, 64], Meta(description="tokens in one KV page")] = 16
    num_kv_pages: Annotated[
        int | None, Meta(description="KV pages to allocate (default: sized from memory)")
    ] = None
    kv_reserve: Annotated[
        Literal["on-demand", "worst-case"],
        Meta(description="take KV pages as needed, or reserve a request's whole lifetime"),
    ] = "on-demand"
    prefix_cache: Annotated[bool, Meta(description="reuse KV pages of equal prefixes")] = True
    kv_hash: Annotated[
        Literal["native", "xxhash_cbor", "sha256_cbor"],
        Meta(description="hashes of KV blocks: our own, or equal to vLLM's of that name"),
    ] = "native"
    kv_hash_seed: Annotated[
        str, Meta(description="PYTHONHASHSEED of the vLLM servers whose hashes must agree")
    ] = "0"
    kv_events: Annotated[
        str | None,
        Meta(description="tell what is cached: tcp://*:5557 or ipc://PATH (ZeroMQ), jsonl:PATH"),
    ] = None
    kv_events_replay: Annotated[
        str | None, Meta(description="where missed KV events can be asked for, tcp://*:5558")
    ] = None
    kv_events_topic: Annotated[str, Meta(description="first frame of KV event messages")] = ""
    kv_events_encoding: Annotated[
        Literal["map", "array"],
        Meta(description="KV events as vLLM sends them since 0.24, or as it did before"),
    ] = "map"
    kv_offload: Annotated[
        str | None,
        Meta(description="KV offload tiers in their order: host, then disk or those of plugins"),
    ] = None
    kv_offload_host_gib: Annotated[
        float, Meta(gt=0, description="host memory for KV offload in GiB")
    ] = 8.0
    kv_offload_disk_path: Annotated[
        str | None,
        Meta(description="folder for KV offload to disk (default: ~/.cache/pegainfer/kv)"),
    ] = None
    kv_offload_disk_gib: Annotated[
        float, Meta(gt=0, le=1 << 30, description="disk space for KV offload in GiB")
    ] = 64.0
    cuda_graph: Annotated[bool, Meta(description="replay decode steps as CUDA graphs")] = True
    load_format: Annotated[
        Literal["auto", "dummy"],
        Meta(description="auto reads the checkpoint; dummy fills seeded random weights"),
    ] = "auto"
    seed: Annotated[int, Meta(description="seed of unseeded requests and dummy weights")] = 0
    device: Annotated[int, Meta(ge=0, description="ordinal of the first GPU")] = 0
    tp: Annotated[int, Meta(ge=1, description="tensor-parallel ranks")] = 1
    ep: Annotated[int, Meta(ge=1, description="expert-parallel ranks")] = 1
    lora: Annotated[
        list[str],
        Meta(
            description="LoRA adapter to load at start, with its name; may be repeated",
            extra={"metavar": "NAME=PATH"},
        ),
    ] = []
    max_loras: Annotated[
        int,
        Meta(
            ge=0,
            le=1024,
            description="LoRA adapters that can be loaded at once; 0 for just those of --lora",
        ),
    ] = 0
    max_lora_rank: Annotated[
        int, Meta(ge=1, le=512, description="largest rank of a LoRA adapter")
    ] = 64


class TierChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A KV offload tier that was chosen, and the plugin that offers it.

    Attributes:
        name: The tier's name in `--kv-offload`.
        entry_point: `module` or `module:attr` of the plugin.
    """

    name: str
    entry_point: str


class LaunchContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a worker process needs to start a family; it crosses processes as msgpack.

    Attributes:
        model_dir: Absolute checkpoint directory.
        family: Id of the chosen family.
        entry_point: `module` or `module:attr` of the plugin that offers it.
        options: The core's options.
        family_options: The family's own options, as built from its options Struct.
        threads: Compute threads of a CPU backend; None leaves the library's default.
        kv_tiers: The KV offload tiers behind the host's, in the order of `--kv-offload`.
    """

    model_dir: str
    family: str
    entry_point: str
    options: CoreOptions = CoreOptions()
    family_options: dict[str, str | int | float | bool | None] = {}
    threads: int | None = None
    kv_tiers: list[TierChoice] = []


class ServePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a family will serve, decided from config and options without touching a device.

    Attributes:
        max_model_len: Longest prompt plus output in tokens.
        vocab_size: Rows of the embedding.
        backend: The backend that will run.
        page_tokens: Tokens in one KV page.
        num_pages: KV pages to allocate; None when they are sized from device memory at launch.
        max_num_seqs: Most requests in one step.
        max_prefill_tokens: Most prompt tokens in one step.
        itl_target_s: Gap between a request's tokens to hold beside prompts; None holds none.
        capabilities: Which request fields will be honoured.
        notes: Lines worth printing at start, such as limits that were lowered.
    """

    max_model_len: int
    vocab_size: int
    backend: str
    page_tokens: int
    num_pages: int | None
    max_num_seqs: int
    max_prefill_tokens: int
    itl_target_s: float | None = None
    capabilities: EngineCapabilities = EngineCapabilities()
    notes: list[str] = []
