"""Bodies of `/v1/load_lora_adapter` and `/v1/unload_lora_adapter`, as vLLM has them."""

import msgspec


class LoadAdapterRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter to load.

    Attributes:
        lora_name: What requests will send as `model`.
        lora_path: Its folder on the server's machine.
        load_inplace: Whether it takes the place of one of that name.
        is_3d_lora_weight: Adapters of experts; not offered here.
    """

    lora_name: str
    lora_path: str
    load_inplace: bool = False
    is_3d_lora_weight: bool = False


class UnloadAdapterRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter to take out.

    Attributes:
        lora_name: Its name.
        lora_int_id: Other servers' number for it; has no meaning here.
    """

    lora_name: str
    lora_int_id: int | None = None
