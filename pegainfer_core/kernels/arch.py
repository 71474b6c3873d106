"""GPU architectures, as compute capabilities."""

from __future__ import annotations

from typing import Final

from pegainfer_core.kernels.errors import KernelError

Arch = int
"""Compute capability as one number: 90 for 9.0."""

ARCHITECTURES: Final[tuple[Arch, ...]] = (80, 90, 100, 120)
"""Those that kernels are built for in the tests."""


def parse_arch(text: str) -> Arch:
    """From `sm_90`, `90` or `9.0`.

    Raises:
        KernelError: It is none of these, or too old for bfloat16 on the tensor cores.
    """
    digits = text.removeprefix("sm_").replace(".", "")
    if not digits.isdecimal() or not 80 <= int(digits) <= 199:
        raise KernelError(
            f"{text!r} is no GPU architecture that kernels can be built for; expected sm_80 or "
            "newer, such as " + ", ".join(f"sm_{arch}" for arch in ARCHITECTURES)
        )
    return int(digits)
