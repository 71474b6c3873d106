"""Adapters beside PEFT's: float32 tokens are equal, and mistakes show."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import pytest

from pegainfer_core.lora import LoraSlots
from pegainfer_core.testing.tiny import ADAPTER_MODULES, tiny_adapter
from plugins.pegainfer_qwen3.tests.stepper import Stepper
from tests.hf import cases

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pegainfer_core.lora import AdapterWeights, PackedAdapter
    from tests.hf.transformers_run import TransformersModel

pytestmark = [
    pytest.mark.hf,
    # PEFT asks transformers for what it calls otherwise by now.
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
]

CASE = "theta_500k"
NUM_TOKENS = 24
PROMPTS = [cases.prompt(CASE, length, 1).tolist() for length in (5, 37, 70)]
#: By name, what `tiny_adapter` makes. Together: every module, odd ranks, both scales and
#: signs, all types.
ADAPTERS: dict[str, dict[str, object]] = {
    "all": {"rank": 8, "alpha": 16.0, "seed": 1},
    "attention": {"rank": 5, "alpha": 5.0, "modules": ADAPTER_MODULES[:4], "seed": 2},
    "mlp": {"rank": 3, "alpha": -12.0, "modules": ADAPTER_MODULES[4:], "seed": 3},
    "rslora": {"rank": 16, "alpha": 8.0, "use_rslora": True, "dtype": "bfloat16", "seed": 4},
    "wide": {"rank": 20, "alpha": 10.0, "modules": ADAPTER_MODULES[1:3], "seed": 5},
}


class Expected(NamedTuple):
    """What follows a prompt with PEFT, and the least lead of a token over the second best."""

    greedy: list[int]
    least_lead: float


class Folders(NamedTuple):
    model: Path
    adapters: dict[str, Path]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    root = tmp_path_factory.mktemp("lora")
    model = cases.build(CASE, root / "model")
    made = {name: tiny_adapter(root / name, model, **each) for name, each in ADAPTERS.items()}  # type: ignore[arg-type]
    return Folders(model, made)


@pytest.fixture(scope="module")
def expected(folders: Folders) -> dict[str, list[Expected]]:
    """By adapter, of all prompts."""
    from peft import PeftModel

    from tests.hf.transformers_run import TransformersModel

    found = {}
    for name, folder in folders.adapters.items():
        theirs = TransformersModel(folders.model)
        theirs._model = PeftModel.from_pretrained(theirs._model, folder).eval()
        found[name] = [_run(theirs, np.array(prompt, np.int32)) for prompt in PROMPTS]
    return found


def _run(theirs: TransformersModel, prompt: NDArray[np.int32]) -> Expected:
    tokens, leads = theirs.greedy([prompt], NUM_TOKENS)
    return Expected(tokens[0].tolist(), float(leads.min()))


def stepper(folders: Folders) -> Stepper:
    made = Stepper(
        folders.model,
        num_kv_pages=400,
        max_lora_rank=20,
        lora=[f"{name}={path}" for name, path in folders.adapters.items()],
    )
    assert made.adapters is not None
    made.adapters.load_at_start(made.context.options)
    return made


def test_tokens_are_pefts(folders: Folders, expected: dict[str, list[Expected]]) -> None:
    """All adapters and the base model side by side, prompts and answers mixed in steps."""
    made = stepper(folders)
    base = [made.generate([prompt], NUM_TOKENS)[0] for prompt in PROMPTS]
    names = list(ADAPTERS)
    slots = [-1, *range(len(names))]
    order = [(prompt, slot) for prompt in range(len(PROMPTS)) for slot in slots]
    found = made.generate(
        [PROMPTS[prompt] for prompt, _ in order],
        NUM_TOKENS,
        chunk_tokens=100,
        adapter_slots=[slot for _, slot in order],
    )
    for tokens, (prompt, slot) in zip(found, order, strict=True):
        if slot < 0:
            assert tokens == base[prompt]
            continue
        reference = expected[names[slot]][prompt]
        assert reference.least_lead > 1e-3, "rounding could decide; take another prompt"
        assert tokens == reference.greedy, names[slot]
        assert tokens != base[prompt]


@pytest.mark.parametrize("fault", ["none", "scale", "module", "part"])
def test_mistakes_show(
    fault: str,
    folders: Folders,
    expected: dict[str, list[Expected]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pack = LoraSlots.pack

    def faulty(slots: LoraSlots, weights: AdapterWeights) -> PackedAdapter:
        config = weights.config
        if fault == "scale":
            config = msgspec.structs.replace(config, scale=1.0)
        left_out = {"module": "mlp.down_proj", "part": "self_attn.k_proj"}.get(fault)
        pairs = {key: pair for key, pair in weights.pairs.items() if key[1] != left_out}
        return pack(slots, weights._replace(config=config, pairs=pairs))

    monkeypatch.setattr(LoraSlots, "pack", faulty)
    made = stepper(folders)
    sequence = made.generate([PROMPTS[2]], NUM_TOKENS, adapter_slots=[0])
    right = sequence[0] == expected["all"][2].greedy
    assert right == (fault == "none")
