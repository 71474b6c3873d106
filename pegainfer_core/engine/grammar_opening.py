"""Grammars for the engine of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pegainfer_core.grammar import GrammarCompiler, GrammarDesk, GrammarProblem

if TYPE_CHECKING:
    from pegainfer_core.contract import LaunchContext, ServePlan

__all__ = ["GrammarDesk", "open_grammars"]


def open_grammars(context: LaunchContext, plan: ServePlan) -> GrammarDesk:
    """The desk of an engine; nothing is loaded before the first request that needs it.

    Args:
        context: Names the checkpoint's folder, whose tokenizer spells tokens.
        plan: Of the engine.
    """
    folder = Path(context.model_dir)
    return GrammarDesk(GrammarCompiler(lambda: _tokenizer_json(folder), plan.vocab_size))


def _tokenizer_json(folder: Path) -> str:
    # Late: most engines never need it.
    from pegainfer_core.text.errors import TokenizerError
    from pegainfer_core.text.tokenizer_loading import load_backend

    path = folder / "tokenizer.json"
    try:
        return path.read_text("utf-8") if path.exists() else load_backend(folder, ()).to_str()
    except (OSError, TokenizerError) as error:
        raise GrammarProblem(f"needs the model's tokenizer: {error}") from error
