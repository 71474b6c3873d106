"""What a plugin's author says that the family can do; the kit tests each word of it."""

from __future__ import annotations

import msgspec

from pegainfer_core.contract import EngineCapabilities


class Requirements(EngineCapabilities, frozen=True, kw_only=True):
    """Stated capabilities. What is stated is tested; what is not must be refused, or is skipped.

    The fields of `EngineCapabilities` must agree with the family's plan and with its engine.

    Attributes:
        paged_kv: Requests hold KV pages, and the metrics count them.
        preemption: The engine honours `--num-kv-pages` and takes pages back from running requests
            when none is left.
        batch_invariant: Greedy tokens do not depend on what else is in the batch.
    """

    paged_kv: bool = True
    preemption: bool = True
    batch_invariant: bool = True

    @property
    def capabilities(self) -> EngineCapabilities:
        """The part that plan and engine must agree with."""
        names = [field.name for field in msgspec.structs.fields(EngineCapabilities)]
        return EngineCapabilities(**{name: getattr(self, name) for name in names})
