"""Flags of `pegainfer serve`. Light: discovery imports it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user can set about the server; how the model runs is set by other flags."""

    host: Annotated[str, Meta(description="address to listen on; 0.0.0.0 for every network")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65535, description="TCP port; 0 takes a free one")] = 8000
    served_model_name: Annotated[
        list[str],
        Meta(description="name in the API, may be repeated (default: the checkpoint's folder)"),
    ] = []
    api_key: Annotated[
        list[str],
        Meta(
            description="accepted API key, may be repeated; other users can see it in the list of "
            "processes, PEGAINFER_API_KEY and --api-key-file they cannot"
        ),
    ] = []
    api_key_file: Annotated[
        str | None,
        Meta(description="file with one accepted API key a line; PEGAINFER_API_KEY adds one"),
    ] = None
    ssl_certfile: Annotated[
        str | None, Meta(description="PEM file with the certificate chain; serves HTTPS")
    ] = None
    ssl_keyfile: Annotated[
        str | None,
        Meta(
            description="PEM file with its key (default: in the same file); "
            "PEGAINFER_SSL_KEYFILE_PASSWORD decrypts it"
        ),
    ] = None
    ssl_ca_certs: Annotated[
        str | None,
        Meta(description="PEM file of authorities; clients must then show a certificate of theirs"),
    ] = None
    cors_origin: Annotated[
        list[str],
        Meta(description="origin of web pages that may call the API, or *; may be repeated"),
    ] = []
    allowed_host: Annotated[
        list[str],
        Meta(description="further Host name to answer to on a loopback address; may be repeated"),
    ] = []
    generation_config: Annotated[
        str,
        Meta(description="sampling defaults: auto (the checkpoint's), none, or a path"),
    ] = "auto"
    sampling_defaults: Annotated[
        str | None,
        Meta(description='sampling defaults as JSON, such as {"temperature": 0.7}'),
    ] = None
    tool_call_parser: Annotated[
        str | None,
        Meta(description="format of tool calls (default: the family's); none switches them off"),
    ] = None
    reasoning_parser: Annotated[
        str | None,
        Meta(description="form of reasoning (default: the family's); none leaves it in the text"),
    ] = None
    max_queue: Annotated[
        int, Meta(ge=0, description="requests that may wait beyond those that run; then 429")
    ] = 1024
    max_body_bytes: Annotated[int, Meta(ge=1, description="largest request body")] = 32 << 20
    ping_interval: Annotated[
        float, Meta(ge=1, description="seconds of silence before a stream gets a comment")
    ] = 15.0
    shutdown_timeout: Annotated[
        float, Meta(ge=0, description="seconds that running requests get after SIGTERM")
    ] = 10.0
    stall_timeout: Annotated[
        float,
        Meta(
            ge=0,
            description="seconds after which a client that takes nothing of its answer is "
            "cut off; 0 never does",
        ),
    ] = 15.0
    in_process: Annotated[
        bool, Meta(description="run the engine in the server's process, not in its own")
    ] = False
    access_log: Annotated[bool, Meta(description="log every HTTP request")] = False
    log_format: Annotated[
        Literal["text", "json"], Meta(description="json writes one object a line, engine included")
    ] = "text"
    otlp_endpoint: Annotated[
        str | None,
        Meta(
            description="URL of an OpenTelemetry collector that takes traces over HTTP, such as "
            "http://localhost:4318; the OTEL_* variables are honoured too"
        ),
    ] = None
    dev: Annotated[bool, Meta(description="add POST /reset_prefix_cache")] = False
