"""Throw-away distributions with plugins, written into a folder that goes on sys.path."""

from __future__ import annotations

import textwrap
from pathlib import Path

FAMILY = """
from pegainfer_core.contract import ServePlan
from pegainfer_core.plugin import ChatProfile, Claim, FamilyOptions, Rejection, hookimpl

__pegainfer_api__ = "1.0"


class Family:
    display_name = "test"
    options = FamilyOptions
    shared_options = frozenset({"max_model_len"})
    chat = ChatProfile()

    def __init__(self, family_id, *model_types):
        self.id = family_id
        self.model_types = model_types

    def probe(self, config, model_dir):
        if config.get("model_type") in self.model_types:
            return Claim("made for tests")
        return Rejection(f"only {', '.join(self.model_types)}")

    def plan(self, context):
        return ServePlan(
            max_model_len=context.options.max_model_len or 64,
            vocab_size=256,
            backend="test",
            page_tokens=16,
            num_pages=4,
            max_num_seqs=1,
            max_prefill_tokens=64,
            notes=["planned by a test"],
        )

    def launch(self, context, plan):
        raise NotImplementedError
"""


class PluginSite:
    """A folder of installed distributions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules: set[str] = set()

    def install(
        self,
        name: str,
        source: str,
        *,
        dist: str | None = None,
        module: str | None = None,
        version: str = "1.0",
        with_family: bool = True,
    ) -> str:
        """Install one plugin of one module; returns the module's name."""
        dist = dist or f"dist-{name}"
        module = module or f"site_{name}"
        prefix = FAMILY if with_family else ""
        (self.folder / f"{module}.py").write_text(prefix + textwrap.dedent(source))
        self.write_metadata(dist, {name: module}, version)
        self.modules.add(module)
        return module

    def write_metadata(self, dist: str, plugins: dict[str, str], version: str = "1.0") -> None:
        """Write a distribution's metadata only."""
        lines = [f"{name} = {value}\n" for name, value in plugins.items()]
        self.write_entry_points(dist, "[pegainfer.plugins]\n" + "".join(lines), version)

    def write_entry_points(self, dist: str, entry_points: str, version: str = "1.0") -> None:
        """Write a distribution's metadata with any entry points."""
        info = self.folder / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(entry_points)
