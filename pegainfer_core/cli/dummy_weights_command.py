"""`pegainfer dummy-weights`: seeded random weights for a folder that has a config."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pegainfer_core.plugin.family import DummyWeights
from pegainfer_core.plugin.fault import CommandFault
from pegainfer_core.plugin.launch import choose_model
from pegainfer_core.weights import ConfigError, checkpoint_dtype, write_dummy

if TYPE_CHECKING:
    from pegainfer_core.cli.core_commands import DummyWeightsOptions
    from pegainfer_core.plugin.host import PluginHost

_WEIGHT_SUFFIXES = (".safetensors", ".safetensors.index.json", ".bin", ".pt", ".pth", ".gguf")


def run(host: PluginHost, options: DummyWeightsOptions) -> int:
    """Write the tensors that `--load-format dummy` would make of the same seed.

    Raises:
        CommandFault: The family has no dummy weights.
        ConfigError: The folder already holds weights, or cannot be written.
    """
    chosen = choose_model(host, options.model, family=options.family)
    family = chosen.offered.family
    if not isinstance(family, DummyWeights):
        raise CommandFault(f"the model family {family.id} does not offer dummy weights")
    specs = family.tensor_specs(chosen.config)
    dtype = checkpoint_dtype(chosen.config) or "bfloat16"
    out = Path(options.out).expanduser() if options.out else chosen.model_dir
    try:
        _copy_small_files(chosen.model_dir, out)
        files = write_dummy(
            out, specs, seed=options.seed, dtype=dtype, num_shards=options.num_shards
        )
    except OSError as error:
        raise ConfigError(
            f"{error.filename or out}: cannot be written: {error.strerror}"
        ) from error
    num_bytes = sum(path.stat().st_size for path in files)
    print(
        f"{out}: {len(specs)} tensors in {len(files)} file{'s' * (len(files) > 1)}, "
        f"{num_bytes / 1e6:,.1f} MB, {dtype}, seed {options.seed}"
    )
    return 0


def _copy_small_files(source: Path, out: Path) -> None:
    """Config, tokenizer and the like, so that the new folder can be served."""
    if out.exists() and out.samefile(source):
        return
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        if path.is_file() and not path.name.endswith(_WEIGHT_SUFFIXES):
            shutil.copyfile(path, out / path.name)
