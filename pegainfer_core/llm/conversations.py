"""How the chats that a caller gave become prompts."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from pegainfer_core.llm.job import encode
from pegainfer_core.llm.prompt_error import PromptError
from pegainfer_core.text import ChatTemplateError

if TYPE_CHECKING:
    from pegainfer_core.llm.job import Prompt
    from pegainfer_core.text import ModelText

Message = Mapping[str, object]
"""A chat message in the OpenAI form."""

Conversations = Sequence[Message] | Sequence[Sequence[Message]]
"""One list of messages, or a list of such lists."""


def read_conversations(
    conversations: Conversations,
    text: ModelText,
    *,
    tools: Sequence[Mapping[str, object]] | None,
    add_generation_prompt: bool | None,
    continue_final_message: bool,
    template_kwargs: Mapping[str, object] | None,
) -> list[Prompt]:
    """Render each with the model's template, and encode it.

    Raises:
        PromptError: The template refuses one, or it has no UTF-8 form.
    """
    if add_generation_prompt is None:
        add_generation_prompt = not continue_final_message
    render = functools.partial(
        text.chat_template.render,
        tools=tools,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        template_kwargs={**text.template_defaults, **(template_kwargs or {})},
    )
    rendered: list[str] = []
    for index, conversation in enumerate(_each(conversations)):
        try:
            rendered.append(render(conversation))
        except ChatTemplateError as error:
            raise PromptError(index, str(error)) from error
    return encode(rendered, text.tokenizer, add_special_tokens=False)


def _each(conversations: Conversations) -> Sequence[Sequence[Message]]:
    if conversations and isinstance(conversations[0], Mapping):
        return [cast("Sequence[Message]", conversations)]
    return cast("Sequence[Sequence[Message]]", conversations)
