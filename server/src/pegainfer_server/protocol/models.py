"""`/v1/models`: what is served."""

import msgspec


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One served name.

    Attributes:
        id: Name to send as `model`.
        created: When the server started, seconds since the epoch.
        root: Path of the checkpoint, or of the adapter.
        parent: Of an adapter: the model it is for.
        max_model_len: Longest prompt plus output in tokens.
        default_sampling_params: Sampling values of requests that do not give their own.
    """

    id: str
    object: str
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int
    default_sampling_params: dict[str, float | int]


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """All served names."""

    object: str
    data: list[ModelCard]
