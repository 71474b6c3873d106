"""The Jinja environment that chat templates are written for, with a bound on their work.

Knows Jinja and the conventions of Hugging Face's templates; knows no messages.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pegainfer_core.text.errors import ChatTemplateError

__all__ = ["CompiledTemplate"]

#: Calls and items of ranges that one rendering may use; a long chat needs a few thousand.
MAX_STEPS: Final = 1_000_000
#: Characters one rendering may produce, and the longest text that a product may make.
MAX_CHARS: Final = 64_000_000
# Kimi-K2's template queues tool call ids in a list of its own. Renderings get their own copies of
# all values, so a list that grows can harm nobody.
_ALLOWED_LIST_METHODS: Final = frozenset({"append", "extend", "insert", "pop"})


class _Refusal(jinja2.TemplateError):
    """A template called raise_exception."""


class _Exhausted(jinja2.TemplateError):
    """A template passed a bound on its work."""


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks training text; here it only groups."""

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


class _Environment(ImmutableSandboxedEnvironment):
    """One rendering's environment: counts steps, so that no template runs for ever."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, jinja2.ext.loopcontrols],
        )
        self.filters["tojson"] = _tojson
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        self.globals["range"] = self._range
        self.steps = 0

    def _range(self, *args: int) -> range:
        items = range(*args)
        self._spend(len(items))
        return items

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise _Exhausted(f"the chat template takes more than {MAX_STEPS:,} steps")

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        if type(obj) is list and attr in _ALLOWED_LIST_METHODS:
            return True
        return super().is_safe_attribute(obj, attr, value)

    def call(
        # Named as in Jinja: a keyword argument `self` must reach the callee.
        __self,
        __context: jinja2.runtime.Context,
        __obj: Callable[..., object],
        *args: object,
        **kwargs: object,
    ) -> object:
        __self._spend(1)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: object, right: object
    ) -> object:
        self._spend(1)
        if operator == "**" and not (isinstance(right, (int, float)) and abs(right) <= 64):
            raise _Exhausted("a power in the chat template is too large")
        for many, times in ((left, right), (right, left)):
            if not isinstance(many, (str, list, tuple)) or not isinstance(times, int):
                continue
            if len(many) * times > MAX_CHARS:
                raise _Exhausted(f"a product in the chat template exceeds {MAX_CHARS:,}")
        return super().call_binop(context, operator, left, right)


class CompiledTemplate:
    """A template, parsed once and rendered many times; safe to share between threads."""

    def __init__(self, source: str, origin: str) -> None:
        """Compile a template.

        Args:
            source: Jinja text.
            origin: file it came from, for messages.

        Raises:
            ChatTemplateError: a syntax error.
        """
        try:
            code = _Environment().compile(source, name=origin, filename=origin)
        except jinja2.TemplateSyntaxError as exc:
            raise ChatTemplateError(f"{origin}, line {exc.lineno}: {exc.message}") from exc
        self._code = code

    def render(self, variables: Mapping[str, object]) -> str:
        """Text for these variables.

        Raises:
            ChatTemplateError: the template refuses (its own words), fails, or works too long.
        """
        environment = _Environment()
        template = jinja2.Template.from_code(environment, self._code, environment.globals)
        parts: list[str] = []
        num_chars = 0
        try:
            for part in template.generate(variables):
                num_chars += len(part)
                if num_chars > MAX_CHARS:
                    raise _Exhausted(f"the chat template writes more than {MAX_CHARS:,} characters")
                parts.append(part)
        except (_Refusal, _Exhausted) as exc:
            raise ChatTemplateError(str(exc)) from exc
        # Templates fail in as many ways as Python does: a message without a field, None + text.
        except Exception as exc:
            raise ChatTemplateError(
                f"the chat template cannot render these messages: {type(exc).__name__}: {exc}"
            ) from exc
        return "".join(parts)


def _raise_exception(message: object = "the chat template refuses these messages") -> NoReturn:
    raise _Refusal(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models saw it in training: Jinja's own filter escapes HTML characters."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
