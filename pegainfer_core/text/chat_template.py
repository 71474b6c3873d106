"""Messages to a prompt text, with the template that the checkpoint ships.

Knows nothing of HTTP. The rendered text holds its special tokens already: encode it with
`add_special_tokens=False`, or a model with a BOS gets two.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from pegainfer_core.text.errors import ChatTemplateError
from pegainfer_core.text.messages import ArgumentsForm, normalise_messages, plain_value
from pegainfer_core.text.special_tokens import SpecialTokens
from pegainfer_core.text.template_environment import CompiledTemplate
from pegainfer_core.text.template_files import DEFAULT_TEMPLATE, TemplateSource, find_templates
from pegainfer_core.text.tool_arguments import find_arguments_form

__all__ = ["ChatTemplate"]

_TOOL_TEMPLATE: Final = "tool_use"
# Set by `render` itself; a request must not reach them through `chat_template_kwargs`.
_RESERVED: Final = frozenset(
    {
        "messages",
        "tools",
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template",
        "tokenize",
    }
)
# Marks the end of a message to be continued. Private-use characters, which no text should hold;
# the space tells whether the template trims messages.
_MARK: Final = "\ue0a1continue\ue0a2"


class ChatTemplate:
    """The chat templates of one checkpoint; may be none, for base models.

    Attributes:
        sources: template texts by name.
    """

    def __init__(
        self,
        templates: Mapping[str, TemplateSource],
        special_tokens: Mapping[str, str],
        origin: str,
    ) -> None:
        """Compile templates.

        Args:
            templates: by name; `default`, and perhaps `tool_use` and others.
            special_tokens: variables that templates may print, such as `bos_token`.
            origin: where templates were looked for, for messages.

        Raises:
            ChatTemplateError: a syntax error; the message names file and line.
        """
        self._compiled = {
            name: CompiledTemplate(source.text, source.origin) for name, source in templates.items()
        }
        self.sources = {name: source.text for name, source in templates.items()}
        self._special_tokens = dict(special_tokens)
        self._origin = origin

    @classmethod
    def from_dir(cls, directory: str | Path) -> "ChatTemplate":
        """Read the templates of a model folder.

        Raises:
            ChatTemplateError: a file is unreadable or a template has a syntax error. A folder
                without templates is no error before `render`.
            TokenizerError: the special tokens' files are unreadable.
        """
        folder = Path(directory)
        special = SpecialTokens.from_dir(folder)
        return cls(find_templates(folder), special.texts, str(folder))

    def __bool__(self) -> bool:
        return bool(self._compiled)

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        documents: Sequence[Mapping[str, object]] | None = None,
        template_kwargs: Mapping[str, object] | None = None,
    ) -> str:
        """Prompt text for a conversation; see `messages.py` for the rules on their shape.

        Args:
            messages: decoded from JSON, in the OpenAI form.
            tools: function declarations; given to the template named `tool_use` if there is one.
            add_generation_prompt: end with the opening of an assistant's turn.
            continue_final_message: end inside the last message, with its text; excludes
                `add_generation_prompt`.
            documents: for templates that know them.
            template_kwargs: further variables, such as `enable_thinking`.

        Raises:
            ChatTemplateError: bad messages (`param` says where), settings that exclude each other,
                the template's own refusal (its words) or failure, or no template at all.
        """
        if continue_final_message and add_generation_prompt:
            raise ChatTemplateError(
                "continue_final_message and add_generation_prompt exclude each other",
                "continue_final_message",
            )
        shaped = normalise_messages(messages, self._arguments_form if messages else "mapping")
        variables: dict[str, object] = {
            **self._special_tokens,
            **_checked_kwargs(template_kwargs or {}),
            "tools": plain_value(tools, "tools") or None,
            "documents": plain_value(documents, "documents"),
            "add_generation_prompt": add_generation_prompt,
        }
        if continue_final_message:
            return self._render_unfinished(shaped, variables)
        return self._render(shaped, variables)

    @cached_property
    def _arguments_form(self) -> ArgumentsForm:
        return find_arguments_form(
            lambda messages, tools: self._render(
                messages, {**self._special_tokens, "tools": tools, "add_generation_prompt": True}
            )
        )

    def _render(self, messages: list[dict[str, object]], variables: Mapping[str, object]) -> str:
        template = self._select(has_tools=variables["tools"] is not None)
        return template.render({**variables, "messages": messages})

    def _select(self, has_tools: bool) -> CompiledTemplate:
        names = (_TOOL_TEMPLATE, DEFAULT_TEMPLATE) if has_tools else (DEFAULT_TEMPLATE,)
        for name in names:
            if name in self._compiled:
                return self._compiled[name]
        present = ", ".join(sorted(self._compiled))
        raise ChatTemplateError(
            f"no default chat template in {self._origin} (it has: {present})"
            if present
            else f"this model has no chat template: looked for chat_template.jinja and "
            f"chat_template in tokenizer_config.json in {self._origin}; use completions"
        )

    def _render_unfinished(
        self, messages: list[dict[str, object]], variables: Mapping[str, object]
    ) -> str:
        """Mark the end of the last message, render, and cut at the mark."""
        final = str(messages[-1]["content"])
        messages[-1]["content"] = f"{final}{_MARK} "
        rendered = self._render(messages, variables)
        text, mark, rest = rendered.rpartition(_MARK)
        if not mark:
            raise ChatTemplateError(
                "continue_final_message: the chat template leaves out the final message",
                f"messages[{len(messages) - 1}].content",
            )
        # A template that trims the mark's space would have trimmed the message's own end as well.
        return text if rest.startswith(" ") else text.rstrip()


def _checked_kwargs(kwargs: Mapping[str, object]) -> dict[str, object]:
    for name in kwargs:
        if name in _RESERVED or not name.isidentifier():
            raise ChatTemplateError(
                f"chat_template_kwargs may not set {name!r}", f"chat_template_kwargs.{name}"
            )
    return {
        name: plain_value(value, f"chat_template_kwargs.{name}") for name, value in kwargs.items()
    }
