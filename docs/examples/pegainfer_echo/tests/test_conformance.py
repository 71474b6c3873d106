from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

from pegainfer_core.testing import FamilyConformance, Requirements


class TestEcho(FamilyConformance):
    plugin = "pegainfer_echo.plugin"
    family = "echo"
    claims = ({"model_type": "echo"}, {"model_type": "echo", "vocab_size": 50})
    slow_options: ClassVar = {"echo_prefill_ms": 20.0, "echo_decode_ms": 2.0}
    requirements = Requirements(
        sampling=False,
        seed=False,
        penalties=False,
        logit_bias=False,
        token_masks=False,
        logprobs=False,
        prompt_logprobs=False,
        prefix_cache=False,
        priority=False,
        paged_kv=False,
    )

    @staticmethod
    def make_model(folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps({"model_type": "echo"}))
