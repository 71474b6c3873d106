"""With transformers: the committed sample writes English, and every family's sample can train."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.hf

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "tools" / "train_samples.py"
FAMILIES = ("qwen3", "qwen35", "dsv2lite", "kimik2")


@pytest.mark.parametrize("name", ["qwen3", "qwen35"])
def test_the_committed_sample_passes_the_quality_check(name):
    command = [sys.executable, str(SCRIPT), "--check", str(REPOSITORY / f"samples/{name}-sample")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("PASS")


@pytest.mark.filterwarnings("ignore")  # torch's and transformers' own.
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_trains_a_step_and_its_checkpoint_loads(name, tmp_path):
    import numpy as np
    import torch
    from samples.build_folder import Stream
    from samples.checkpoint import write_checkpoint
    from samples.families import FAMILIES as TABLE
    from samples.families import load_float32
    from samples.training import TrainingPlan, train

    assert tuple(TABLE) == FAMILIES
    ids = np.random.default_rng(0).integers(0, 4096, size=2000).astype(np.uint16)
    stream = Stream(token_ids=ids, starts=np.arange(0, 1900, 50))
    plan = TrainingPlan(
        num_steps=2, batch_tokens=64, sequence_tokens=32, long_sequence_tokens=64, eval_windows=2
    )
    model = TABLE[name].build(seed=0)
    assert model.num_parameters() <= 2_000_000
    before = next(model.parameters()).detach().clone()
    result = train(model, stream, stream, plan)
    assert 5.0 < result.held_out_loss < 12.0
    assert not torch.equal(before, next(model.parameters()).detach().cpu())
    build = REPOSITORY / "samples" / "qwen3-sample"  # has the tokenizer.json a build folder has
    write_checkpoint(model, TABLE[name], name, build, tmp_path, result)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4_000_000
    loaded = load_float32(tmp_path)
    trained, read = dict(model.named_parameters()), dict(loaded.named_parameters())
    assert trained.keys() == read.keys()
    assert all(torch.equal(trained[key].float(), read[key]) for key in trained)
    with torch.no_grad():
        logits = loaded(input_ids=torch.arange(16)[None]).logits
    assert logits.shape == (1, 16, 4096) and bool(logits.isfinite().all())
