import re
import time
from collections.abc import Mapping
from datetime import datetime

import pytest

from pegainfer_core.text import ChatTemplateError
from pegainfer_core.text.template_environment import MAX_CHARS, MAX_STEPS, CompiledTemplate


def _render(source: str, variables: Mapping[str, object] | None = None) -> str:
    return CompiledTemplate(source, "test").render(variables or {})


def test_blocks_leave_no_whitespace() -> None:
    assert _render("{% if true %}\n  a\n  {% endif %}\nb") == "  a\nb"


def test_loop_controls_and_generation_tag() -> None:
    source = "{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}"
    assert _render(source) == "13"
    assert _render("{% generation %}a{{ 1 }}{% endgeneration %}b") == "a1b"


def test_tojson_writes_what_models_know() -> None:
    value = {"b": "<é'&>", "a": [1, None, True]}
    assert _render("{{ v | tojson }}", {"v": value}) == '{"b": "<é\'&>", "a": [1, null, true]}'
    assert _render("{{ v | tojson(indent=1, sort_keys=true) }}", {"v": {"b": 1, "a": 2}}) == (
        '{\n "a": 2,\n "b": 1\n}'
    )


def test_strftime_now() -> None:
    assert _render("{{ strftime_now('%Y') }}") == str(datetime.now().year)


def test_refusals_keep_their_words() -> None:
    with pytest.raises(ChatTemplateError, match=r"^only user and assistant$"):
        _render("{{ raise_exception('only user and assistant') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ nothing.at.all }}",
        "{{ 'a' + none }}",
        "{{ 1 / 0 }}",
        "{{ missing() }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ {}.update({'a': 1}) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% include 'other' %}",
    ],
)
def test_failures_are_one_kind_of_error(source: str) -> None:
    with pytest.raises(ChatTemplateError, match=r"^the chat template cannot render"):
        _render(source)


def test_lists_of_the_template_may_grow() -> None:
    source = "{% set ns = namespace(l=[]) %}{% set _ = ns.l.append(1) %}{{ ns.l.pop(0) }}{{ ns.l }}"
    assert _render(source) == "1[]"


@pytest.mark.parametrize(
    ("source", "bound"),
    [
        (
            "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
            f"{MAX_STEPS:,} steps",
        ),
        ("{{ 'ab' * 1000000000 }}", f"exceeds {MAX_CHARS:,}"),
        ("{{ 1000000000 * [1] }}", f"exceeds {MAX_CHARS:,}"),
        ("{{ 10 ** 1000000000 }}", "power"),
        (
            "{% for i in range(9000) %}{{ 'aaaaaaaaaa' * 1000 }}{% endfor %}",
            f"{MAX_CHARS:,} characters",
        ),
    ],
)
def test_work_is_bounded(source: str, bound: str) -> None:
    start = time.monotonic()
    with pytest.raises(ChatTemplateError, match=re.escape(bound)):
        _render(source)
    assert time.monotonic() - start < 10


def test_a_list_that_grows_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegainfer_core.text.template_environment.MAX_STEPS", 10_000)
    with pytest.raises(ChatTemplateError, match=r"10,000 steps"):
        _render("{% set l = [1] %}{% for x in l %}{% set _ = l.append(1) %}{% endfor %}")


def test_bounds_count_each_rendering_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegainfer_core.text.template_environment.MAX_STEPS", 1_000)
    template = CompiledTemplate(
        "{% for i in range(900) %}{% endfor %}{{ 3 * 'a' }}{{ 2 ** 3 }}", "x"
    )
    assert [template.render({}) for _ in range(3)] == ["aaa8"] * 3
