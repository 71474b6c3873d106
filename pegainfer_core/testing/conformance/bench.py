"""A family, its tiny checkpoint and the engines its tests started; one bench per test class."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec
import pytest

from pegainfer_core.contract import CoreOptions, LaunchContext, ServePlan
from pegainfer_core.engine import ProcessEngine
from pegainfer_core.plugin.api import ENTRY_POINT_GROUP
from pegainfer_core.testing.conformance.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.contract import EngineHandle
    from pegainfer_core.plugin import ModelFamily
    from pegainfer_core.testing.conformance.subject import Subject

Transport = Literal["in-process", "process"]
OptionValue = str | int | float | bool | None
Options = Mapping[str, OptionValue]
"""Values by field."""

_NONE: Final[Options] = MappingProxyType({})

BLOCKED_MODULES: Final = (
    *("cupy", "triton", "torch", "transformers", "numpy", "scipy", "tokenizers", "jinja2"),
    *("litestar", "uvicorn"),
)
"""Not there when the CLI starts, probes and plans."""

_LIGHT_PROCESS: Final = Path(__file__).with_name("light_process.py")
_MAX_NUM_SEQS: Final = 16


class LightReport(msgspec.Struct, kw_only=True):
    """What `light_process` found.

    Attributes:
        import_s: Processor time of the plugin's import.
        claims: Whether the family claims each of the configs.
        plan: Its plan.
        plan_again: The same once more.
        error: A traceback; what came after it in the order above is missing.
    """

    import_s: float | None = None
    claims: list[bool] = []
    plan: ServePlan | None = None
    plan_again: ServePlan | None = None
    error: str = ""


class Bench:
    """What the tests of one class work with.

    Attributes:
        model_dir: The tiny checkpoint.
        plugin: The module or object that the entry point names.
        family: The family under test.
    """

    def __init__(self, subject: type[Subject], model_dir: Path) -> None:
        """Load the plugin; `model_dir` holds the checkpoint already."""
        self.model_dir = model_dir
        self.plugin: object = EntryPoint("plugin", subject.plugin, ENTRY_POINT_GROUP).load()
        self.family = _family(self.plugin, subject)
        self._subject = subject
        self._sessions: dict[object, Session] = {}
        self._light: LightReport | None = None

    def context(self, options: Options = _NONE, *, slow: bool = False) -> LaunchContext:
        """A launch context with these core options; `slow` adds the subject's `slow_options`.

        Skips the test when the family does not honour one of them.
        """
        honoured = self.family.shared_options
        for name in options:
            if name not in honoured:
                pytest.skip(f"the family does not use the option {name}")
        if "max_num_seqs" in honoured:
            options = {"max_num_seqs": _MAX_NUM_SEQS, **options}
        return LaunchContext(
            model_dir=str(self.model_dir),
            family=self.family.id,
            entry_point=self._subject.plugin,
            options=msgspec.convert(dict(options), CoreOptions),
            family_options=dict(self._subject.slow_options) if slow else {},
        )

    def plan(self, options: Options = _NONE) -> ServePlan:
        """The family's plan with these core options."""
        return self.family.plan(self.context(options))

    def session(
        self,
        options: Options = _NONE,
        *,
        transport: Transport = "in-process",
        slow: bool = False,
        fresh: bool = False,
    ) -> Session:
        """An engine with these core options, shared with other tests unless `fresh`."""
        key = object() if fresh else (transport, slow, tuple(sorted(options.items())))
        if key not in self._sessions:
            context = self.context(options, slow=slow)
            plan = self.family.plan(context)
            handle: EngineHandle
            if transport == "process":
                handle = ProcessEngine(context, plan)
            else:
                handle = self.family.launch(context, plan)
            self._sessions[key] = Session(handle, self._subject.timeout_s)
        return self._sessions[key]

    def light_report(self, *, again: bool = False) -> LightReport:
        """Run the plugin's light half in a Python of its own; once, unless asked `again`."""
        if self._light is None or again:
            job = {
                "sys_path": sys.path,
                "blocked": BLOCKED_MODULES,
                "context": msgspec.to_builtins(self.context()),
                "configs": list(self._subject.claims),
            }
            done = subprocess.run(
                [sys.executable, "-P", "-W", "error", str(_LIGHT_PROCESS)],
                input=json.dumps(job),
                capture_output=True,
                text=True,
                check=False,
                timeout=self._subject.timeout_s,
            )
            if done.returncode:
                return LightReport(error=done.stderr)
            self._light = msgspec.json.decode(done.stdout, type=LightReport)
        return self._light

    def close(self) -> None:
        """Close every engine."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.handle.close()


def _family(plugin: object, subject: type[Subject]) -> ModelFamily:
    offer = getattr(plugin, "model_families", None)
    assert offer is not None, f"{subject.plugin} implements no model_families hook"
    families = {family.id: family for family in cast("Sequence[ModelFamily]", offer())}
    assert subject.family in families, (
        f"{subject.plugin} offers no model family {subject.family!r}, but {sorted(families)}"
    )
    return families[subject.family]
