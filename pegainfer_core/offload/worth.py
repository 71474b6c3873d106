"""Whether bringing pages back is quicker than computing them. Knows rates, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegainfer_core.offload.rate_meter import RateMeter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.offload.record import RecordLayout

HOST: Final = "host"
"""Name of the first tier, in options and metrics."""

_WINDOW_BYTES: Final = 512e6
_WINDOW_TOKENS: Final = 32_768
_LEAST_PATIENCE_S: Final = 1.0


class Worth:
    """Compares measured rates. What was not measured lately is tried.

    Attributes:
        prefill: Meter of prompt tokens computed, fed by the engine's thread.
        tiers: Meters of bytes by tier; the host's is that of the copies to the device.

    Args:
        layout: Of a page: host memory gives its bytes, the tiers behind it whole records.
        page_tokens: Tokens in one page.
        host: Meter of the copies from host memory to the device.
        names: The tiers behind host memory.
    """

    def __init__(
        self, layout: RecordLayout, page_tokens: int, host: RateMeter, names: list[str]
    ) -> None:
        self.prefill = RateMeter(_WINDOW_TOKENS)
        self.tiers = {HOST: host} | {name: RateMeter(_WINDOW_BYTES) for name in names}
        self._bytes = {HOST: layout.page_bytes} | dict.fromkeys(names, layout.record_bytes)
        self._page_tokens = page_tokens

    def pays(self, num_by_source: Mapping[str, int]) -> bool:
        """Whether to restore: bytes ÷ the tiers' rates < tokens ÷ the rate of prefill.

        Args:
            num_by_source: Pages that each tier would give.
        """
        num_tokens = sum(num_by_source.values()) * self._page_tokens
        return self.is_quicker(self.restore_s(num_by_source), num_tokens)

    def is_quicker(self, restore_s: float, num_tokens: int) -> bool:
        """Whether a restore of so many seconds beats computing so many tokens."""
        prefill_rate = self.prefill.rate
        return prefill_rate is None or restore_s < num_tokens / prefill_rate

    def patience_s(self, num_pages: int) -> float:
        """How long a sequence waits for so many pages: a few times what computing them takes."""
        compute_s = self.prefill.seconds_for(num_pages * self._page_tokens)
        return max(3 * compute_s, _LEAST_PATIENCE_S)

    def restore_s(self, num_by_source: Mapping[str, int]) -> float:
        """Seconds that restoring pages of these tiers takes."""
        return sum(
            self.tiers[name].seconds_for(count * self._bytes[name])
            for name, count in num_by_source.items()
        )
