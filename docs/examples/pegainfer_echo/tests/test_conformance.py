from typing import ClassVar

from pegainfer_echo.checkpoint import CONFIG, write_checkpoint

from pegainfer_core.testing import FamilyConformance, Requirements


class TestEcho(FamilyConformance):
    plugin = "pegainfer_echo.plugin"
    family = "echo"
    claims = (CONFIG, {"model_type": "echo"})
    make_model = staticmethod(write_checkpoint)
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
