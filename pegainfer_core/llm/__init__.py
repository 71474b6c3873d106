"""The offline API: `LLM` and what it returns and raises."""

from pegainfer_core.llm.llm import LLM
from pegainfer_core.llm.prompt_error import PromptError
from pegainfer_core.llm.request_output import RequestOutput

__all__ = ["LLM", "PromptError", "RequestOutput"]
