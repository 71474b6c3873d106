"""The parameter loader: exact fit of checkpoint and config, stacking, memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pegainfer_core.weights import (
    ArraySource,
    ConfigError,
    ParameterLoader,
    TensorSpec,
    round_floats,
)
from tests.zero_weights import write_zeros

SPECS = {
    "q": TensorSpec((4, 3)),
    "k": TensorSpec((2, 3)),
    "norm": TensorSpec((3,), "norm"),
    "router": TensorSpec((2, 3), "router", "float32"),
}


def source(**changes: tuple[int, ...] | None) -> ArraySource:
    shapes = {name: spec.shape for name, spec in SPECS.items()}
    found = {name: shape for name, shape in {**shapes, **changes}.items() if shape is not None}
    rng = np.random.default_rng(0)
    return ArraySource({n: rng.normal(size=s).astype(np.float32) for n, s in found.items()})


def test_reads_and_stacks() -> None:
    stored = source()
    seen: list[tuple[int, int]] = []
    loader = ParameterLoader(stored, SPECS, dtype="float32", progress=lambda *at: seen.append(at))
    stacked = loader.read_stacked(["q", "k"])
    np.testing.assert_array_equal(stacked, [*stored.read_f32("q"), *stored.read_f32("k")])
    with pytest.raises(RuntimeError, match="never read: tensors norm, router are left out"):
        loader.finish()
    out = np.empty(3, np.float32)
    assert loader.read("norm", out) is out
    loader.read("router")
    loader.finish()
    assert seen == [(12, 27), (18, 27), (21, 27), (27, 27)]


def test_rounds_to_the_models_type_but_keeps_what_the_spec_keeps() -> None:
    stored = source()
    loader = ParameterLoader(stored, SPECS, dtype="bfloat16")
    rounded = stored.read_f32("q")
    round_floats(rounded, "bfloat16")
    np.testing.assert_array_equal(loader.read("q"), rounded)
    np.testing.assert_array_equal(loader.read("router"), stored.read_f32("router"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": None}, "memory: tensor k is missing"),
        ({"k": None, "norm": None}, "tensors k, norm are missing"),
        ({"q.bias": (4,)}, "tensor q.bias is not part of the model"),
        ({"k": (3, 2)}, r"tensor k has shape \(3, 2\), but the config makes it \(2, 3\)"),
        ({f"x{i}": (1,) for i in range(9)}, "tensors x0, x1, x2, x3 and 5 more are not part"),
    ],
)
def test_misfits_are_found_before_reading(
    changes: dict[str, tuple[int, ...] | None], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ParameterLoader(source(**changes), SPECS, dtype="float32")


def test_ignored_tensors() -> None:
    stored = source(**{"layers.0.inv_freq": (2,), "q_extra": (1,)})
    ParameterLoader(stored, SPECS, dtype="float32", ignore=[r".*inv_freq$", "q_extra"])
    with pytest.raises(ConfigError, match="tensor q_extra is not part"):
        ParameterLoader(stored, SPECS, dtype="float32", ignore=[r".*inv_freq$"])


def test_renamed_tensors() -> None:
    nested = ArraySource(
        {f"model.language_model.{name}": np.ones(s.shape, np.float32) for name, s in SPECS.items()}
    )
    loader = ParameterLoader(
        nested,
        SPECS,
        dtype="float32",
        rename=lambda name: name.removeprefix("model.language_model."),
    )
    assert loader.read("q").shape == (4, 3)
    both = source(**{"outer.q": (4, 3)})
    with pytest.raises(ConfigError, match=r"tensors outer\.q and q are both read as q"):
        ParameterLoader(
            both, SPECS, dtype="float32", rename=lambda name: name.removeprefix("outer.")
        )


MEMORY_SCRIPT = """
import sys, threading
from pathlib import Path
import numpy as np
from pegainfer_core.weights import Checkpoint, ParameterLoader, TensorSpec

def resident(kind):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(kind))

class Peak(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.done = threading.Event()
        self.anon = self.file = 0
    def run(self):
        while not self.done.wait(0.002):
            self.look()
    def look(self):
        self.anon = max(self.anon, resident("RssAnon"))
        self.file = max(self.file, resident("RssFile"))

before, before_file = resident("RssAnon"), resident("RssFile")
peak = Peak()
peak.start()
with Checkpoint(Path(sys.argv[1])) as checkpoint:
    specs = {name: TensorSpec(checkpoint.shape(name)) for name in checkpoint.names()}
    loader = ParameterLoader(checkpoint, specs, dtype="bfloat16", progress=lambda *_: peak.look())
    kept = [loader.read("embed")]
    for i in range(3):
        kept.append(loader.read_stacked([f"{i}.q", f"{i}.k"]))
    loader.finish()
    peak.look()
peak.done.set()
assert sum(array.nbytes for array in kept) == int(sys.argv[2]) * 2
print(peak.anon, peak.anon - before, peak.file - before_file)
"""


def test_memory_while_loading(tmp_path: Path) -> None:
    """Anonymous memory holds the float32 weights and little else; mapped pages are given back."""
    shapes = {"embed": (40_000, 1000)}
    for i in range(3):
        shapes |= {f"{i}.q": (16_000, 1000), f"{i}.k": (4000, 1000)}
    write_zeros(tmp_path, shapes)
    stored_bytes = 2 * sum(rows * columns for rows, columns in shapes.values())
    assert 190e6 < stored_bytes < 210e6
    script = [sys.executable, "-c", MEMORY_SCRIPT, str(tmp_path), str(stored_bytes)]
    output = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    peak, added, mapped = (int(word) for word in output.split())
    assert peak <= 2.1 * stored_bytes + 300e6
    # The bound above leaves room for a whole extra copy of a model this small; this one does not.
    assert added <= 2.0 * stored_bytes + 30e6
    assert mapped <= 60e6
