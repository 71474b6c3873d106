"""What can be wrong with the text side of a checkpoint or of a request."""

__all__ = ["ChatTemplateError", "GenerationConfigError", "TextError", "TokenizerError"]


class TextError(ValueError):
    """Base of the errors of this package; the message is fit to show to a user."""


class TokenizerError(TextError):
    """Tokenizer files are missing or unusable, or a text or id cannot be converted."""


class GenerationConfigError(TextError):
    """generation_config.json, or an end token id in config.json, cannot be understood."""


class ChatTemplateError(TextError):
    """Messages cannot be rendered: bad shape, a template's own refusal, or a broken template.

    Attributes:
        param: where in the request the fault lies, such as `messages[0].content[1]`, or None.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param
