"""A plugin that makes every start of the command line pay for NumPy."""

import numpy  # noqa: F401
from pegainfer_echo.plugin import model_families

__all__ = ["model_families"]
__pegainfer_api__ = "1.0"
