"""The plugin pages say what the code does: hooks, members, surface, versions, examples."""

from __future__ import annotations

import inspect
import re
import types
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from pegainfer_core.contract import CONTRACT_VERSION
from pegainfer_core.kv import KvTier
from pegainfer_core.offload import GuardPolicy
from pegainfer_core.plugin import HOOK_API, DummyWeights, ModelFamily, hookspecs
from pegainfer_core.plugin.api import PROJECT
from pegainfer_core.plugin.hook_book import HookBook
from pegainfer_core.testing import KvTierConformance
from pegainfer_core.testing.conformance import FOREIGN_CONFIGS, Requirements
from pegainfer_core.testing.conformance.subject import Subject
from tests.docs.pages import ECHO, PLUGIN_DOCS, ROOT, SHOWN, Block, blocks, files, headings
from tests.docs.surface import PACKAGES, public_names, rendered, summary

HOOKS = PLUGIN_DOCS / "hooks.md"
HOW_TO_REFRESH = "stale; run python -m tests.docs.refresh"


def hooks() -> dict[str, str]:
    """Every hook with its argument list, as a heading would have it."""
    specs = {n: f for n, f in vars(hookspecs).items() if hasattr(f, f"{PROJECT}_spec")}
    return {n: f"{n}({', '.join(inspect.signature(f).parameters)})" for n, f in specs.items()}


@pytest.mark.parametrize("name", hooks())
def test_every_hook_is_a_heading_with_its_arguments(name: str) -> None:
    assert hooks()[name] in headings(HOOKS)


def test_no_heading_names_a_hook_that_does_not_exist() -> None:
    text = HOOKS.read_text(encoding="utf-8")
    section = text[text.index("## Hooks") : text.index("## ModelFamily")]
    assert re.findall(r"^### `(.*)`$", section, re.MULTILINE) == list(hooks().values())


@pytest.mark.parametrize("name", hooks())
def test_every_hook_has_a_test(name: str) -> None:
    sources = [p for p in (ROOT / "tests").rglob("test_*.py") if p != Path(__file__)]
    assert any(f"test_hook_{name}" in path.read_text(encoding="utf-8") for path in sources)


@pytest.mark.parametrize("name", hooks())
def test_every_hook_has_an_example_that_registers(name: str) -> None:
    text = HOOKS.read_text(encoding="utf-8")
    start = text.index(f"### `{hooks()[name]}`")
    match = re.compile(r"```python\n(.*?)```", re.DOTALL).search(text, start)
    assert match is not None
    plugin = types.ModuleType(f"example_{name}")
    exec(compile(match[1], str(HOOKS), "exec"), vars(plugin))
    assert HookBook().register(plugin, "example") == [name]


@pytest.mark.parametrize("protocol", [ModelFamily, DummyWeights])
def test_every_member_of_a_family_is_a_heading(protocol: type) -> None:
    members = [n for n in (*inspect.get_annotations(protocol), *vars(protocol)) if n[0] != "_"]
    assert members
    for name in members:
        member = vars(protocol).get(name)
        if inspect.isfunction(member):
            names = [p for p in inspect.signature(member).parameters if p != "self"]
            name = f"{name}({', '.join(names)})"
        assert name in headings(HOOKS)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_exists(package: str) -> None:
    module = import_module(f"pegainfer_core.{package}")
    for name in public_names(package):
        assert getattr(module, name) is not None
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_class_and_function_says_what_it_is(package: str) -> None:
    module = import_module(f"pegainfer_core.{package}")
    for name in public_names(package):
        if inspect.isclass(getattr(module, name)) or inspect.isfunction(getattr(module, name)):
            words = summary(package, name)
            # A dataclass without a docstring is given its signature.
            assert len(words) > 10 and not words.startswith(f"{name}("), name


def test_the_surface_page_is_current() -> None:
    assert (PLUGIN_DOCS / "surface.md").read_text(encoding="utf-8") == rendered(), HOW_TO_REFRESH


def test_the_compatibility_page_names_versions_and_packages() -> None:
    text = (PLUGIN_DOCS / "compatibility.md").read_text(encoding="utf-8")
    assert f"hook API **{HOOK_API[0]}.{HOOK_API[1]}**" in text
    assert f"contract version **{CONTRACT_VERSION[0]}.{CONTRACT_VERSION[1]}**" in text
    for package in PACKAGES:
        assert f"`{package}`" in text or f"`pegainfer_core.{package}`" in text


def test_the_conformance_page_names_every_attribute() -> None:
    text = (PLUGIN_DOCS / "conformance.md").read_text(encoding="utf-8")
    attributes = [name for name in inspect.get_annotations(Subject) if not name.startswith("_")]
    own = inspect.get_annotations(Requirements)
    for name in [*attributes, "make_model", *own]:
        assert f"`{name}`" in text
    assert f"refuses {len(FOREIGN_CONFIGS) // 10 * 10} foreign configs" in text


def test_the_page_on_tiers_names_every_attribute_and_limit() -> None:
    text = (PLUGIN_DOCS / "tiers.md").read_text(encoding="utf-8")
    for name in [*inspect.get_annotations(KvTierConformance), "open_tier(place)"]:
        assert f"| `{name}` |" in text
    for name in ("contains", "save", "load", "drop", "stats", "close"):
        assert callable(getattr(KvTier, name)) and f"`{name}`" in text
    policy = GuardPolicy()
    words = f"has {policy.call_deadline_s:g} s, and a second more per {policy.min_bytes_per_s:.0e}"
    assert words.replace("1e+08", "100 MB") in text
    assert f"cut the tier off for {policy.cool_down_s:g} s" in text
    assert (policy.max_failures, policy.max_cool_down_s) == (3, 300.0)


def test_the_conformance_page_shows_a_class_that_works(tmp_path: Path) -> None:
    (block,) = blocks(PLUGIN_DOCS / "conformance.md", "python")
    namespace: dict[str, object] = {}
    exec(compile(block.text, block.name, "exec"), namespace)
    subject = namespace["TestParrot"]
    assert isinstance(subject, type) and issubclass(subject, Subject)
    assert isinstance(subject.requirements, Requirements)
    subject.make_model(tmp_path)
    config = msgspec.json.decode((tmp_path / "config.json").read_bytes())
    assert config == subject.claims[0]


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_a_page_shows_its_example_file_for_file(page: Path) -> None:
    shown, example = files(page), SHOWN[page]
    for name, text in shown.items():
        assert (example / name).read_text(encoding="utf-8") == text, f"{name} is {HOW_TO_REFRESH}"
    there = {
        str(path.relative_to(example))
        for pattern in ("*.toml", "src/**/*.py", "tests/*.py")
        for path in example.glob(pattern)
    }
    assert there - {"tests/test_echo.py"} == set(shown)


def test_the_readme_of_the_example_lists_every_flag() -> None:
    from pegainfer_echo.plugin import EchoOptions

    flags = re.findall(r"^\| `(--[\w-]+)", (ECHO / "README.md").read_text(), re.MULTILINE)
    fields = [f"--{name.replace('_', '-')}" for name in EchoOptions.__struct_fields__]
    assert sorted(flags) == sorted(fields)


def test_blocks_are_found() -> None:
    """The reader of pages itself works, or everything above would pass on nothing."""
    found = blocks(PLUGIN_DOCS / "tutorial.md", "sh")
    assert len(found) >= 5 and all(isinstance(block, Block) for block in found)
