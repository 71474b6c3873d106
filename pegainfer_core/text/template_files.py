"""Finding the chat templates of a checkpoint.

Knows the files; what a template does is not its business.
"""

from pathlib import Path

import msgspec

from pegainfer_core.text.errors import ChatTemplateError
from pegainfer_core.text.json_file import find_file, read_json_object, read_text

__all__ = ["DEFAULT_TEMPLATE", "TemplateSource", "find_templates"]

DEFAULT_TEMPLATE = "default"
_TEMPLATE_FILE = "chat_template.jinja"
_MORE_TEMPLATES = "additional_chat_templates"
_CONFIG_FILE = "tokenizer_config.json"


class TemplateSource(msgspec.Struct, frozen=True, kw_only=True):
    """Text of a template and the file it came from."""

    text: str
    origin: str


def find_templates(directory: Path) -> dict[str, TemplateSource]:
    """Templates by name; empty when the checkpoint has none.

    chat_template.jinja is `default`, additional_chat_templates/NAME.jinja is NAME; both go before
    tokenizer_config.json, whose `chat_template` is one text or a list of named ones.

    Raises:
        ChatTemplateError: a file is unreadable or the config's entry has an unknown form.
    """
    found = _config_templates(directory)
    path = find_file(directory, _TEMPLATE_FILE, ChatTemplateError)
    if path is not None:
        found[DEFAULT_TEMPLATE] = _from_file(path)
    for path in sorted((directory / _MORE_TEMPLATES).glob("*.jinja")):
        found[path.stem] = _from_file(path)
    return found


def _from_file(path: Path) -> TemplateSource:
    return TemplateSource(text=read_text(path, ChatTemplateError), origin=str(path))


def _config_templates(directory: Path) -> dict[str, TemplateSource]:
    path = find_file(directory, _CONFIG_FILE, ChatTemplateError)
    entry = None if path is None else read_json_object(path, ChatTemplateError).get("chat_template")
    if entry is None:
        return {}
    origin = f"chat_template in {path}"
    if isinstance(entry, str):
        return {DEFAULT_TEMPLATE: TemplateSource(text=entry, origin=origin)}
    try:
        named = msgspec.convert(entry, list[dict[str, str]])
        texts = {item["name"]: item["template"] for item in named}
    except (msgspec.ValidationError, KeyError) as exc:
        raise ChatTemplateError(
            f"{origin} must be a string or a list of objects with name and template"
        ) from exc
    return {
        name: TemplateSource(text=text, origin=f"{name!r} of {origin}")
        for name, text in texts.items()
    }
