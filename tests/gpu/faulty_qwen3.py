"""A plugin whose Qwen3 fails on demand: a prompt's first token says how its first step ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_qwen3.plugin import Qwen3Family

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.contract import EngineHandle, LaunchContext, ServePlan
    from pegainfer_core.engine import LaunchedStep, StepPlan
    from pegainfer_core.plugin import ModelFamily

BREAKS_THE_DEVICE = 7
RAISES = 8

_NOWHERE = 1 << 20


class FaultyFamily(Qwen3Family):
    id = "faulty"

    def launch(self, context: LaunchContext, plan: ServePlan) -> EngineHandle:
        from pegainfer_core.engine import DecoderRunner

        launch = DecoderRunner.launch

        def launch_or_fail(runner: DecoderRunner, plan: StepPlan) -> LaunchedStep:
            firsts = {row.sequence.token_ids[0] for row in plan.rows}
            if RAISES in firsts:
                raise ArithmeticError("asked to fail")
            if BREAKS_THE_DEVICE in firsts:
                _write_nowhere(runner)
            return launch(runner, plan)

        DecoderRunner.launch = launch_or_fail  # type: ignore[method-assign]
        return super().launch(context, plan)


def _write_nowhere(runner: object) -> None:
    """Let a kernel use an address that nobody has: the context does not survive it."""
    from pegainfer_core.kernels import catalog

    backend = runner._backend  # type: ignore[attr-defined]
    kernel = backend.library.get(catalog.fill_quantiles("bf16"))
    kernel.launch(backend.device.stream, (1, 1), _NOWHERE, _NOWHERE, 1, 4096)


def model_families() -> Sequence[ModelFamily]:
    return [FaultyFamily()]
