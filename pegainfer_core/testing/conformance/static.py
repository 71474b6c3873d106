"""Level 0: what can be said of a plugin without running a model. Takes about a second."""

from __future__ import annotations

import json
from importlib import metadata
from typing import TYPE_CHECKING, ClassVar

import msgspec
import pytest

from pegainfer_core.cli.flags import Parser, build
from pegainfer_core.cli.launching import ModelOptions
from pegainfer_core.contract import CoreOptions, LaunchContext, ServePlan
from pegainfer_core.plugin import Claim, ConfigDict, Rejection
from pegainfer_core.plugin.api import ENTRY_POINT_GROUP, check_api
from pegainfer_core.plugin.flag import flags_of
from pegainfer_core.plugin.hook_book import HookBook
from pegainfer_core.plugin.offered_family import as_family
from pegainfer_core.testing.conformance.bench import BLOCKED_MODULES
from pegainfer_core.testing.conformance.foreign_configs import FOREIGN_CONFIGS
from pegainfer_core.testing.conformance.option_examples import command_line, example_values
from pegainfer_core.testing.conformance.subject import Subject

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.testing.conformance.bench import Bench

_IMPORT_TRIES = 3


class StaticConformance(Subject):
    """Level 0, for any plugin with a model family."""

    level: ClassVar[str] = "L0"

    def test_the_hook_api_is_one_this_host_serves(self, bench: Bench) -> None:
        """`__pegainfer_api__` is declared and compatible."""
        check_api(bench.plugin, dist="this plugin's package")

    def test_every_hook_exists(self, bench: Bench) -> None:
        """No misspelt hook, no unknown argument, no wrapper."""
        assert "model_families" in HookBook().register(bench.plugin, "plugin")

    def test_the_family_is_complete(self, bench: Bench) -> None:
        """It has every member of `ModelFamily`, and its options can be flags."""
        family = as_family(bench.family)
        assert family.display_name
        unknown = family.shared_options - {f.name for f in msgspec.structs.fields(CoreOptions)}
        assert not unknown, f"shared_options names no core options: {sorted(unknown)}"

    def test_the_entry_point_is_installed(self, bench: Bench) -> None:
        """Some installed distribution has it, resolves to this plugin, and depends on pegainfer."""
        entries = metadata.entry_points(group=ENTRY_POINT_GROUP)
        mine = [entry for entry in entries if entry.value == self.plugin]
        assert mine, (
            f"no installed distribution has an entry point {ENTRY_POINT_GROUP} = {self.plugin}"
        )
        assert mine[0].load() is bench.plugin
        assert mine[0].dist is not None
        needs = mine[0].dist.requires or []
        assert any(need.replace(" ", "").startswith("pegainfer") for need in needs), (
            f"{mine[0].dist.name} does not depend on pegainfer; it requires {needs}"
        )

    def test_the_light_half_imports_nothing_heavy(self, bench: Bench) -> None:
        """Import, `model_families`, `probe` and `plan` work where heavy modules do not exist."""
        report = bench.light_report()
        assert not report.error, f"with {', '.join(BLOCKED_MODULES)} out of reach:\n{report.error}"
        assert report.claims == [True] * len(self.claims)

    def test_the_import_is_within_its_budget(self, bench: Bench) -> None:
        """Every start of the CLI pays for it. The best of a few runs, in processor time."""
        times_s = []
        for attempt in range(_IMPORT_TRIES):
            import_s = bench.light_report(again=attempt > 0).import_s
            if import_s is None:
                pytest.skip("the import failed, as test_the_light_half_imports_nothing_heavy shows")
            times_s.append(import_s)
            if import_s <= self.import_budget_s:
                return
        pytest.fail(
            f"importing {self.plugin} took {min(times_s) * 1e3:.0f} ms of processor time; "
            f"the budget is {self.import_budget_s * 1e3:.0f} ms"
        )

    def test_probe_claims_its_own(self, bench: Bench, tmp_path: Path) -> None:
        """Each of `claims`, and the tiny model."""
        tiny = json.loads((bench.model_dir / "config.json").read_text(encoding="utf-8"))
        for config in (*self.claims, tiny):
            answer = self._probe(bench, config, tmp_path)
            assert isinstance(answer, Claim), f"refused {config}: {answer}"

    def test_probe_refuses_foreign_models(self, bench: Bench, tmp_path: Path) -> None:
        """Configs of other models than those of `claims`, each with a reason for the user."""
        own = {config["model_type"] for config in self.claims if "model_type" in config}
        for config in FOREIGN_CONFIGS.values():
            if config.get("model_type") not in own:
                self._expect_refusal(bench, config, tmp_path)

    def test_probe_refuses_what_it_cannot_serve(self, bench: Bench, tmp_path: Path) -> None:
        """Each of `refuses`."""
        for config in self.refuses:
            self._expect_refusal(bench, config, tmp_path)

    def test_options_survive_flags_and_json(self, bench: Bench) -> None:
        """What a user types is what `launch` gets in another process, for every option."""
        options = bench.family.options
        values = example_values(options, self.option_examples)
        parser = Parser("serve", "")
        parser.add_flags("family", flags_of(options))
        given, words = parser.parse(command_line(values))
        from_flags = build(options, given)
        assert not words
        assert from_flags == msgspec.convert(values, options)
        as_json = msgspec.json.encode(from_flags)
        assert msgspec.json.decode(as_json, type=options) == from_flags
        context = LaunchContext(
            model_dir="", family="", entry_point="", family_options=msgspec.to_builtins(from_flags)
        )
        received = msgspec.msgpack.decode(msgspec.msgpack.encode(context), type=LaunchContext)
        assert msgspec.convert(received.family_options, options) == from_flags

    def test_options_are_described_and_do_not_hide_core_flags(self, bench: Bench) -> None:
        """Every option has a help text and a name of its own."""
        taken = {flag.name for group in (CoreOptions, ModelOptions) for flag in flags_of(group)}
        for flag in flags_of(bench.family.options):
            assert flag.help, f"{flag.name} has no Meta(description=...)"
            assert flag.name not in taken, f"{flag.name} is a common flag already"

    def test_the_plan_is_deterministic(self, bench: Bench) -> None:
        """The same in this process, again, and in another process; and it crosses processes."""
        plan = bench.plan()
        assert bench.plan() == plan
        encoded = msgspec.msgpack.encode(plan)
        assert msgspec.msgpack.decode(encoded, type=ServePlan) == plan
        report = bench.light_report()
        if report.plan is None:
            pytest.skip("no plan there, as test_the_light_half_imports_nothing_heavy shows")
        assert report.plan == plan
        assert report.plan_again == plan

    def test_the_plan_follows_the_options(self, bench: Bench) -> None:
        """Limits that the family says it honours bind its plan."""
        plan = bench.plan()
        smaller = {
            "max_model_len": max(plan.max_model_len // 2, 2),
            "max_num_seqs": 3,
            "max_prefill_tokens": 16,
        }
        for name in sorted(bench.family.shared_options & smaller.keys()):
            bound = bench.plan({name: smaller[name]})
            assert getattr(bound, name) == smaller[name], f"--{name} does not bind the plan"

    def test_capabilities_are_as_stated(self, bench: Bench) -> None:
        """`requirements` and the plan agree, so that nothing is skipped by mistake."""
        assert bench.plan().capabilities == self.requirements.capabilities

    def _probe(self, bench: Bench, config: ConfigDict, folder: Path) -> Claim | Rejection:
        """Ask twice; the answers must agree, and the config must be left alone."""
        before = msgspec.json.encode(config)
        answer = bench.family.probe(config, folder)
        assert isinstance(answer, Claim | Rejection), f"probe returned {answer!r}"
        assert bench.family.probe(config, folder) == answer, "probe must be pure"
        assert msgspec.json.encode(config) == before, "probe changed the config"
        return answer

    def _expect_refusal(self, bench: Bench, config: ConfigDict, folder: Path) -> None:
        answer = self._probe(bench, config, folder)
        assert isinstance(answer, Rejection), f"claimed {config}"
        assert answer.reason.strip(), f"refused {config} without a reason"
