"""What builders and compiler processes say to each other."""

from __future__ import annotations

import msgspec

from pegainfer_core.kernels.manifest import ManifestEntry
from pegainfer_core.kernels.spec import KernelSpec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel to compile."""

    spec: KernelSpec
    arch: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a job: the kernel, or why there is none."""

    entry: ManifestEntry | None = None
    code: bytes = b""
    error: str = ""
