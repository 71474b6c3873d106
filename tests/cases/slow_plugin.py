"""A third-party family that loads for as long as a test wants, and grabs ports meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

from pegainfer_core.testing.byte_tokenizer import byte_tokenizer
from tests.plugin_host.plugin_site import PluginSite

CONFIG = {"model_type": "slow", "max_position_embeddings": 65_536}
SOURCE = """
import socket
import time
from pathlib import Path

from pegainfer_core.plugin import Claim, Rejection, hookimpl
from pegainfer_echo.plugin import EchoFamily

__pegainfer_api__ = "1.0"


class SlowFamily(EchoFamily):
    id = "slow"
    display_name = "Slow"

    def probe(self, config, model_dir):
        return Claim("slow") if config.get("model_type") == "slow" else Rejection("not slow")

    def launch(self, context, plan):
        grabbed = [socket.create_server(("127.0.0.1", 0)) for _ in range(200)]
        while not (Path(context.model_dir) / "go").exists():
            time.sleep(0.02)
        for sock in grabbed:
            sock.close()
        return super().launch(context, plan)


@hookimpl
def model_families():
    return [SlowFamily()]
"""


class SlowModel:
    """A checkpoint of the slow family.

    Attributes:
        folder: The checkpoint.
        env: What makes a server find the plugin.
    """

    def __init__(self, base: Path) -> None:
        site = base / "site"
        site.mkdir()
        PluginSite(site).install("slow", SOURCE, with_family=False)
        self.folder = byte_tokenizer(base / "slow")
        (self.folder / "config.json").write_text(json.dumps(CONFIG))
        self.env = {"PYTHONPATH": str(site)}

    def let_load(self) -> None:
        """Let the engine become ready."""
        (self.folder / "go").touch()
