"""Adapters on CUDA: the kernels against NumPy, then whole models, recorded and not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from pegainfer_qwen3.config import plan_qwen3
from pegainfer_qwen3.engine import launch

from pegainfer_core.backend import DType, LoraSite, StepMetadata
from pegainfer_core.contract import AdapterEngine, SamplingParams
from pegainfer_core.testing.conformance.session import Session
from pegainfer_core.testing.tiny import tiny_adapter
from plugins.pegainfer_qwen3.tests.stepper import Stepper, launch_context
from tests.gpu.pair import MAX_ROWS, MAX_TOKENS, Pair, Split
from tests.hf import cases

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pegainfer_core.backend.cuda import CudaBackend

pytestmark = pytest.mark.gpu

#: In bfloat16 rounding may decide between near ties.
EXACT = pytest.mark.parametrize("model", ["gqa5"], indirect=True)
NUM_TOKENS = 24
NUM_PAGES = 512
#: Tokens and slot of each row, decoding rows first.
ROWS = {
    "one row": ((1, 0),),
    "rows in turn": tuple((1, slot) for slot in (0, -1, 2, 1, 0, -1, 2)),
    "many rows of one adapter": ((1, 1),) * 40,
    "prompts": ((1, 2), (1, -1), (300, 0), (17, 2), (100, -1), (1, 1), (200, 1)),
}
#: Width of the input, outputs of each part, room for ranks, rank in each slot.
SITES = {
    "qkv of 4B": (2560, (4096, 1024, 1024), 16, (8, 16, 3)),
    "gate and up of 4B": (2560, (9728, 9728), 64, (64, 20, 33)),
    "down of 4B": (9728, (2560,), 32, (32, 1, 17)),
    "odd sizes": (200, (80, 16, 16), 16, (5, 16, 9)),
}


def backend(*, record: bool) -> CudaBackend:
    from pegainfer_core.backend.cuda import CudaBackend

    return CudaBackend(record=record)


@pytest.fixture(scope="module")
def recording() -> CudaBackend:
    return backend(record=True)


@pytest.fixture(scope="module")
def eager() -> CudaBackend:
    return backend(record=False)


def on_both(pair: Pair, site: str) -> Split:
    width, widths, room, ranks = SITES[site]
    slots, parts = len(ranks), len(widths)
    down = np.zeros((slots, parts * room, width), np.float32)
    up = np.zeros((slots, sum(widths), room), np.float32)
    facts = np.zeros((slots, 2), np.float32)
    for slot, rank in enumerate(ranks):
        for part in range(parts):
            first = part * room
            down[slot, first : first + rank] = pair.values(rank, width, scale=width**-0.5)
        up[slot, :, :rank] = pair.values(sum(widths), rank)
        facts[slot] = 0.5 + slot, rank
    tensors = [pair.tensor(down), pair.tensor(up), pair.tensor(facts, DType.FLOAT32)]
    return Split(
        LoraSite(*(each.numpy for each in tensors), widths),
        LoraSite(*(each.cuda for each in tensors), widths),
    )


def metadata_of(rows: Sequence[tuple[int, int]]) -> StepMetadata:
    metadata = StepMetadata(MAX_TOKENS, MAX_ROWS, 1000, 16)
    for count, slot in rows:
        pages = [1] * -(-count // 16)
        metadata.add_row([0] * count, 0, pages, samples=True, adapter=slot)
    metadata.finish(next((i for i, row in enumerate(rows) if row[0] > 1), len(rows)))
    return metadata


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("site", SITES)
def test_sums_are_as_on_numpy(site: str, rows: str, dtype: DType, eager: CudaBackend) -> None:
    pair = Pair(eager, dtype, seed=len(site) + len(rows))
    sites = on_both(pair, site)
    eager.prepare_lora([sites.cuda])  # type: ignore[list-item]
    metadata = metadata_of(ROWS[rows])
    count = metadata.num_tokens
    width, widths = SITES[site][:2]
    x = pair.random_tensor(MAX_TOKENS, width)
    before = pair.values(MAX_TOKENS, sum(widths))
    out = pair.tensor(before)
    batch = Split(pair.numpy.upload(metadata), eager.upload(metadata))
    pair.both("add_lora", batch, x, sites, out, pair.workspace())
    pair.check(out, count)
    # Rows without an adapter, and those behind the step's own, bit by bit.
    untouched = np.ones(MAX_TOKENS, bool)
    first = 0
    for num_tokens, slot in ROWS[rows]:
        untouched[first : first + num_tokens] = slot < 0
        first += num_tokens
    found: NDArray[np.float32] = eager.to_host(out.cuda, MAX_TOKENS)
    np.testing.assert_array_equal(found[untouched], before[untouched])


class Model:
    """A tiny checkpoint with three adapters."""

    def __init__(self, case: str, folder: Path) -> None:
        self.case = case
        self.path = cases.build(case, folder / "model")
        self.adapters = [
            tiny_adapter(folder / "x", self.path, rank=4, seed=1),
            tiny_adapter(folder / "y", self.path, rank=24, seed=2),
            tiny_adapter(folder / "z", self.path, modules=("mlp.down_proj",), seed=3),
        ]

    def options(self) -> dict[str, object]:
        return {
            "lora": [f"{path.name}={path}" for path in self.adapters],
            "max_lora_rank": 24,
            "num_kv_pages": NUM_PAGES,
        }

    def stepper(self, backend: CudaBackend | None) -> Stepper:
        made = Stepper(self.path, backend=backend, **self.options())
        assert made.adapters is not None
        made.adapters.load_at_start(made.context.options)
        return made

    def prompt(self, index: int) -> list[int]:
        return cases.prompt(self.case, 5 + 9 * index, 0).tolist()


@pytest.fixture(scope="module", params=["gqa5", "bf16"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(request.param, tmp_path_factory.mktemp(request.param))


MIX = (-1, 0, 1, 2, 0, -1, 1, 1, 0)


@pytest.mark.parametrize("num_rows", [1, 2, 5, 9])
def test_a_recording_does_what_the_steps_did(
    num_rows: int, model: Model, recording: CudaBackend, eager: CudaBackend
) -> None:
    prompts, slots = [model.prompt(i) for i in range(num_rows)], MIX[-num_rows:]
    found = [
        model.stepper(each).generate(prompts, NUM_TOKENS, adapter_slots=slots)
        for each in (recording, eager)
    ]
    assert found[0] == found[1]
    if model.case == "gqa5":
        assert found[0] == model.stepper(None).generate(prompts, NUM_TOKENS, adapter_slots=slots)


@EXACT
def test_rows_are_as_alone(model: Model, recording: CudaBackend) -> None:
    """float32: ways differ by less than any lead. Rows of the base model are among them."""
    made = model.stepper(recording)
    prompts = [model.prompt(i) for i in range(len(MIX))]
    together = made.generate(prompts, NUM_TOKENS, adapter_slots=MIX)
    plain = Stepper(model.path, backend=recording, num_kv_pages=NUM_PAGES)
    for prompt, slot, tokens in zip(prompts, MIX, together, strict=True):
        if slot < 0:
            assert plain.generate([prompt], NUM_TOKENS) == [tokens]
        else:
            assert made.generate([prompt], NUM_TOKENS, adapter_slots=[slot]) == [tokens]


def test_steps_of_the_base_model_are_what_they_were(model: Model, recording: CudaBackend) -> None:
    """Bit-equal logits with and without LoRA, though other steps with adapters run between."""
    prompt = model.prompt(4)
    plain = Stepper(model.path, backend=recording, num_kv_pages=NUM_PAGES)
    made = model.stepper(recording)
    expected = plain.logits(prompt)
    np.testing.assert_array_equal(made.logits(prompt), expected)
    made.generate([prompt], NUM_TOKENS, adapter_slots=[1])
    np.testing.assert_array_equal(made.logits(prompt), expected)
    base = plain.generate([prompt] * 3, NUM_TOKENS)
    assert made.generate([prompt] * 3, NUM_TOKENS) == base


def test_recorded_sizes_exist_twice(model: Model) -> None:
    """With adapters and without; only without where LoRA is off."""
    for options in (model.options(), {"num_kv_pages": NUM_PAGES}):
        own = backend(record=True)
        made = Stepper(model.path, backend=own, **options)
        (upload,) = (each for each in own._uploads.values() if each.recordings)
        shapes = [shape for (shape, _), recording in upload.recordings.items() if recording]
        plain = {shape for shape in shapes if not shape.adapted}
        adapted = {shape._replace(adapted=False) for shape in shapes if shape.adapted}
        assert adapted == (plain if made.adapters else set())
        sizes = own.recorded_sizes(made.plan.max_num_seqs)
        assert {shape.num_decode for shape in plain} >= set(sizes)


@EXACT
def test_adapters_change_beside_running_requests(model: Model) -> None:
    """What runs keeps its weights, though its name is given to others and slots are overwritten."""
    options = model.options() | {"max_loras": 4, "prefix_cache": False, "backend": "cuda"}
    context = launch_context(model.path, max_num_seqs=16, max_model_len=512, **options)
    session = Session(launch(context, plan_qwen3(context)), 60)
    engine, params = session.handle, SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    assert isinstance(engine, AdapterEngine)
    try:
        prompt = model.prompt(2)
        alone = {
            name: session.answer(session.submit(prompt, params, lora=name)).token_ids
            for name in ("x", "y")
        }
        live = [session.submit(prompt, params, lora="x") for _ in range(3)]
        session.wait_tokens(live[0], 5)
        engine.load_adapter("x", str(model.adapters[1]), replace=True).result(60)
        new = session.submit(prompt, params, lora="x")
        for request_id in live:
            assert session.answer(request_id).token_ids == alone["x"]
        # The slot of the first weights is free by now, while a step may be under way.
        engine.load_adapter("again", str(model.adapters[0])).result(60)
        assert session.answer(new).token_ids == alone["y"]
        again = session.answer(session.submit(prompt, params, lora="again"))
        assert again.token_ids == alone["x"]
    finally:
        engine.close()
