"""What the host sees of echo: it claims `model_type: "echo"` and says how it will be served."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from pegainfer_core.contract import EngineCapabilities, ServePlan
from pegainfer_core.plugin import ChatProfile, Claim, FamilyOptions, Rejection, hookimpl
from pegainfer_core.weights import ConfigError, load_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.contract import EngineHandle, LaunchContext
    from pegainfer_core.plugin import ConfigDict, ModelFamily

__pegainfer_api__ = "1.0"

CAPABILITIES = EngineCapabilities(
    sampling=False,
    seed=False,
    penalties=False,
    logit_bias=False,
    token_masks=False,
    logprobs=False,
    prompt_logprobs=False,
    prefix_cache=False,
    priority=False,
)


class EchoOptions(FamilyOptions, frozen=True, kw_only=True):
    """Flags of `pegainfer serve` for an echo model."""

    echo_prefill_ms: Annotated[
        float, Meta(ge=0, description="time a step with new requests takes")
    ] = 0.0
    echo_decode_ms: Annotated[float, Meta(ge=0, description="time any other step takes")] = 0.0
    echo_script: Annotated[
        str | None, Meta(description="answer with this text's UTF-8 bytes instead of the prompt")
    ] = None
    echo_fail_after: Annotated[
        int | None, Meta(description="raise inside this step (to rehearse engine faults)")
    ] = None


class EchoFamily:
    """Repeats the prompt (or a script) for ever, one token a step."""

    id = "echo"
    display_name = "Echo"
    options: type[FamilyOptions] = EchoOptions
    shared_options = frozenset({"max_model_len", "max_num_seqs", "seed"})
    chat = ChatProfile()

    def probe(self, config: ConfigDict, model_dir: Path) -> Claim | Rejection:
        """Claim configs that call themselves echo."""
        if config.get("model_type") == "echo":
            return Claim("repeats its prompt")
        return Rejection(f"model_type is {config.get('model_type')!r}, not 'echo'")

    def plan(self, context: LaunchContext) -> ServePlan:
        """Take sizes from config.json, bounded by --max-model-len."""
        config = load_config(Path(context.model_dir))
        vocab_size = config.get("vocab_size", 1024)
        limit = config.get("max_position_embeddings", 4096)
        if not isinstance(vocab_size, int) or not isinstance(limit, int):
            raise ConfigError(f"{context.model_dir}/config.json: sizes must be integers")
        asked = context.options.max_model_len
        if asked is not None and not 2 <= asked <= limit:
            raise ConfigError(f"--max-model-len {asked} must be from 2 to {limit} for this model")
        return ServePlan(
            max_model_len=asked or limit,
            vocab_size=vocab_size,
            backend="echo",
            page_tokens=context.options.kv_page_size,
            num_pages=0,
            max_num_seqs=context.options.max_num_seqs,
            max_prefill_tokens=limit,
            capabilities=CAPABILITIES,
        )

    def launch(self, context: LaunchContext, plan: ServePlan) -> EngineHandle:
        """Start the engine; imports wait until here so that discovery stays cheap."""
        from pegainfer_echo.engine import launch

        return launch(context, plan)


@hookimpl
def model_families() -> Sequence[ModelFamily]:
    """Offer the family to the host."""
    return [EchoFamily()]
