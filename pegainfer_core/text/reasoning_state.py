"""Whether a prompt ends inside the model's reasoning.

Knows the rendered prompt only: templates open, close or leave out the block for reasons of their
own, so neither the model's name nor the request's `enable_thinking` can tell.
"""

__all__ = ["prompt_ends_in_reasoning"]


def prompt_ends_in_reasoning(
    rendered: str, *, continued: str = "", start: str = "<think>", end: str = "</think>"
) -> bool:
    """Whether the answer to a rendered prompt begins as reasoning.

    Only what belongs to the answer's own turn counts, as the words of a user may spell the tags:
    the prompt's very end, and the text of a continued final message.

    Args:
        rendered: the prompt.
        continued: content of the final message when the prompt continues it.
        start: tag that opens the block.
        end: tag that closes it.
    """
    prompt = rendered.rstrip()
    own = continued.rstrip()
    if own and prompt.endswith(own):
        opened, closed = own.rfind(start), own.rfind(end)
        if opened != closed:
            return opened > closed
        prompt = prompt.removesuffix(own).rstrip()
    return prompt.endswith(start)
