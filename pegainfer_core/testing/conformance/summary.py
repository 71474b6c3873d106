"""Prints at the end of a test run how far each family got. Knows no test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

_NAME: Final = "pegainfer-conformance"
_LEVELS: Final = ("L0", "L1", "tier")


class ConformanceSummary:
    """A pytest plugin that counts the outcomes of watched classes."""

    def __init__(self) -> None:
        self._outcomes: dict[str, dict[str, dict[str, int]]] = {}
        self._skips: dict[str, dict[str, str]] = {}

    def watch(self, node: pytest.Class) -> None:
        """Count the tests of this class from now on."""
        self._outcomes[node.nodeid] = {}
        self._skips[node.nodeid] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note an outcome."""
        class_id, _, name = report.nodeid.rpartition("::")
        name = name.partition("[")[0]
        counts = self._outcomes.get(class_id)
        decides = report.when == "call" or report.outcome != "passed"
        if counts is None or not decides:
            return
        marked = [level for level in _LEVELS if level in report.keywords]
        level = counts.setdefault(marked[0] if marked else "own tests", {})
        level[report.outcome] = level.get(report.outcome, 0) + 1
        if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
            self._skips[class_id][name] = report.longrepr[2].removeprefix("Skipped: ")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print it."""
        terminalreporter.section("conformance")
        for class_id, levels in self._outcomes.items():
            parts = [f"{level}: {_counted(levels[level])}" for level in sorted(levels)]
            terminalreporter.write_line(f"{class_id}  {'; '.join(parts)}")
            for test, reason in self._skips[class_id].items():
                terminalreporter.write_line(f"  skipped {test}: {reason}")


def watch_class(config: pytest.Config, node: pytest.Class) -> None:
    """Have a class's outcomes in the summary of this run."""
    summary = config.pluginmanager.get_plugin(_NAME)
    if summary is None:
        summary = ConformanceSummary()
        config.pluginmanager.register(summary, _NAME)
    assert isinstance(summary, ConformanceSummary)
    summary.watch(node)


def _counted(outcomes: dict[str, int]) -> str:
    return ", ".join(f"{outcomes[name]} {name}" for name in sorted(outcomes))
