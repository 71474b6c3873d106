"""What a plugin's author fills in, and the fixture every level works with."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import pytest

from pegainfer_core.testing.conformance.bench import Bench
from pegainfer_core.testing.conformance.requirements import Requirements
from pegainfer_core.testing.conformance.summary import watch_class

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pegainfer_core.plugin import ConfigDict
    from pegainfer_core.testing.conformance.bench import Options

_BENCH = pytest.StashKey[Bench]()
_NO_OPTIONS: Options = MappingProxyType({})


class Subject:
    """The plugin under test. A subclass sets the first three attributes and `make_model`.

    Attributes:
        plugin: Value of its entry point, `module` or `module:attribute`.
        family: Id of one of its families.
        claims: Configs that the family must claim.
        refuses: Configs that it must refuse, beside those of other makers.
        requirements: What the family can do.
        option_examples: Values for options of its own for which the kit finds no example.
        slow_options: Options of its own that make a step last some milliseconds, for families so
            fast that a request ends before it can be aborted.
        import_budget_s: Most processor time that importing the plugin may take beyond core's own.
        timeout_s: Most time to wait for any answer.
    """

    plugin: ClassVar[str]
    family: ClassVar[str]
    claims: ClassVar[Sequence[ConfigDict]]
    refuses: ClassVar[Sequence[ConfigDict]] = ()
    requirements: ClassVar[Requirements] = Requirements()
    option_examples: ClassVar[Options] = _NO_OPTIONS
    slow_options: ClassVar[Options] = _NO_OPTIONS
    import_budget_s: ClassVar[float] = 0.03
    timeout_s: ClassVar[float] = 60.0

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Mark a level's tests with it, so that `pytest -k L0` runs that level alone."""
        super().__init_subclass__(**kwargs)
        level = vars(cls).get("level")
        if level is not None:
            for name, test in vars(cls).items():
                if name.startswith("test_"):
                    setattr(test, level, True)

    @staticmethod
    def make_model(folder: Path) -> object:
        """Write a tiny checkpoint into a folder: config.json, and weights if the family has any."""
        raise NotImplementedError("set make_model to a function that writes a tiny checkpoint")

    @pytest.fixture
    def bench(
        self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Bench:
        """The class's bench; its engines are closed after the last test of the class.

        Not a class-scoped fixture: pytest's rules for those on methods changed between versions.
        """
        node = request.node.getparent(pytest.Class)
        assert node is not None
        bench: Bench | None = node.stash.get(_BENCH, None)
        if bench is None:
            watch_class(request.config, node)
            folder = tmp_path_factory.mktemp(self.family)
            self.make_model(folder)
            bench = node.stash[_BENCH] = Bench(type(self), folder)
            node.addfinalizer(bench.close)
        return bench

    def require(self, requirement: str) -> None:
        """Skip the test unless `requirements` states this."""
        if not getattr(self.requirements, requirement):
            pytest.skip(f"the family states that it has no {requirement}")
