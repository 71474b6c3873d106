"""A progress bar on the terminal while a checkpoint is read; nothing where nobody looks."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pegainfer_core.weights.loader import Progress


@contextmanager
def loading_bar() -> Iterator[Progress | None]:
    """Show the share of values read; gives what to pass to `ParameterLoader`."""
    if not sys.stderr.isatty():
        yield None
        return
    # Costs a worker that shows nothing 3 MB and 50 ms.
    from tqdm import tqdm

    with tqdm(desc="loading weights", unit="value", unit_scale=True) as bar:

        def show(num_read: int, num_values: int) -> None:
            bar.total = num_values
            bar.update(num_read - bar.n)

        yield show
