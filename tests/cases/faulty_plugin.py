"""A third-party family whose steps fail on demand: a prompt's first byte says how."""

from __future__ import annotations

from pathlib import Path

from pegainfer_core.testing.tiny import script, table_model
from tests.plugin_host.plugin_site import PluginSite

FAILS_THE_STEP = "!"
LOSES_THE_DEVICE = "?"
SOURCE = """
from pegainfer_core.contract import DeviceFault
from pegainfer_core.plugin import Rejection, hookimpl
from pegainfer_qwen3.plugin import Qwen3Family

__pegainfer_api__ = "1.0"


class FaultyFamily(Qwen3Family):
    id = "faulty"
    display_name = "Faulty"

    def probe(self, config, model_dir):
        return Rejection("only by --family")

    def launch(self, context, plan):
        from pegainfer_core.engine import DecoderRunner

        launch = DecoderRunner.launch

        def launch_or_fail(runner, plan):
            firsts = {row.sequence.token_ids[0] for row in plan.rows}
            if ord("!") in firsts:
                raise ArithmeticError("asked to fail")
            if ord("?") in firsts:
                raise DeviceFault("GPU 0 (Test) cannot be used any more")
            return launch(runner, plan)

        DecoderRunner.launch = launch_or_fail
        return super().launch(context, plan)


@hookimpl
def model_families():
    return [FaultyFamily()]
"""


class FaultyModel:
    """A checkpoint that says A without end, and a family that can fail.

    Attributes:
        folder: The checkpoint.
        env: What makes a server find the plugin.
    """

    def __init__(self, base: Path) -> None:
        site = base / "site"
        site.mkdir()
        PluginSite(site).install("faulty", SOURCE, with_family=False)
        self.folder = table_model(base / "m", script("A", ["A"]), max_position_embeddings=65_536)
        self.env = {"PYTHONPATH": str(site)}
