"""What reaches an engine's driver loop, from another thread or over a socket."""

from __future__ import annotations

import msgspec

from pegainfer_core.contract import GenerateRequest


class Submit(msgspec.Struct, frozen=True, array_like=True, tag="submit"):
    """Open and queue a request."""

    request: GenerateRequest


class Abort(msgspec.Struct, frozen=True, array_like=True, tag="abort"):
    """End a request; unknown and ended ids are ignored."""

    request_id: int


class ResetPrefixCache(msgspec.Struct, frozen=True, array_like=True, tag="reset"):
    """Drop cached pages that no live request uses; those in host memory too, unless told not to."""

    device_only: bool = False


class Close(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """Fail what is open and leave the loop."""


Command = Submit | Abort | ResetPrefixCache | Close
