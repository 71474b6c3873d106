"""What is raised when a checkpoint or its config is at fault.

Knows no file format: every reader of this package raises it.
"""

__all__ = ["ConfigError"]


class ConfigError(ValueError):
    """A checkpoint, its config or an option makes serving impossible.

    The message is one line for the person at the prompt: the file or key, the value found, and
    what to do.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
