"""Times a prefill step by parts on the GPU: `bench_prefill.py [CONFIG]`.

Prints, for prompts of several lengths and for chunks behind a context, the device time of a whole
step of dummy weights, of its products alone, its attention alone and the rest alone (the other
launches left out), the rate of the attention, and the share of products and attention in the step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench_step import QWEN3_4B, Bench

from pegainfer_core.backend.cuda.device import Event
from pegainfer_core.engine import Row

if TYPE_CHECKING:
    from collections.abc import Callable

_REPEATS = 5
_CASES = ((0, 128), (0, 1024), (0, 4096), (12_288, 4096), (1008, 16), (4080, 16), (16_368, 16),
          (16_128, 256))  # fmt: skip
"""(tokens in the pages, new tokens)."""


class PrefillBench(Bench):
    """Steps with some of their launches left out."""

    def __init__(self, config: dict[str, object]) -> None:
        super().__init__(config)
        self.config = config
        ops = self.backend.ops
        attention = ops._attention
        self._launches: dict[str, list[tuple[object, str]]] = {
            "products": [(ops.products, name) for name in ("linear", "add")],
            "attention": [(attention, "attend")],
            "rest": [(ops, "_launch"), (attention, "prepare")],
        }

    def parts(self, context: int, count: int) -> str:
        """A line of the table."""
        whole = self._time(context, count, ())
        products = self._time(context, count, ("attention", "rest"))
        attention = self._time(context, count, ("products", "rest"))
        rest = self._time(context, count, ("products", "attention"))
        rate = self._attention_flops(context, count) / attention / 1e9
        return (
            f"{context:6} + {count:5}: step {whole:8.3f} ms, products {products:8.3f}, attention "
            f"{attention:8.3f} ({rate:5.0f} TFLOP/s), rest {rest:7.3f}, "
            f"{100 * (products + attention) / whole:5.1f} %"
        )

    def _attention_flops(self, context: int, count: int) -> float:
        width = int(str(self.config["num_attention_heads"])) * int(str(self.config["head_dim"]))
        keys = count * context + count * (count + 1) / 2
        return 4.0 * keys * width * int(str(self.config["num_hidden_layers"]))

    def _time(self, context: int, count: int, without: tuple[str, ...]) -> float:
        """Milliseconds of the fastest step."""
        restore = [self._leave_out(name) for name in without]
        try:
            return min(self._step_ms(context, count) for _ in range(_REPEATS))
        finally:
            for put_back in restore:
                put_back()

    def _step_ms(self, context: int, count: int) -> float:
        self._next_page = 1
        sequence = self.sequence(context + count)
        sequence.num_computed = context
        first, last = Event(timing=True), Event(timing=True)
        device = self.backend.device
        device.synchronize()
        first.record(device)
        self.step([Row(sequence, context, count, False)])
        last.record(device)
        last.wait()
        return last.ms_since(first)

    def _leave_out(self, name: str) -> Callable[[], None]:
        """Replace launches by nothing; returns what puts them back."""
        launches = self._launches[name]
        for owner, method in launches:
            setattr(owner, method, _nothing)

        def put_back() -> None:
            for owner, method in launches:
                delattr(owner, method)

        return put_back


def _nothing(*_: object, **__: object) -> None:
    return None


def main() -> int:
    config = json.loads(Path(sys.argv[1]).read_text()) if len(sys.argv) > 1 else QWEN3_4B
    bench = PrefillBench(config)
    lines = [bench.parts(context, count) for context, count in _CASES]
    lines += [bench.prefill(size) for size in (128, 1024, 4096, 16384)]
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
