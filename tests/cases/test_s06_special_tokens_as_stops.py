"""S06: a hidden token that ends the answer takes no visible character with it."""

from __future__ import annotations

from typing import Any

import pytest

from pegainfer_core.testing.tiny import script, table_model
from tests.cases.conftest import BARE_TEMPLATE, Serve
from tests.cases.http_server import HttpServer

TURN = 257
SHOWN: dict[str, Any] = {"skip_special_tokens": False}


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    """`@` is answered with `ok.`, then the special `<turn>`, then more."""
    table = script("@", ["ok.", TURN, "x", 256])
    return serve(
        table_model(tmp_path_factory.mktemp("s06") / "model", table, chat_template=BARE_TEMPLATE)
    )


@pytest.mark.parametrize(
    ("fields", "text", "found"),
    [
        ({"stop_token_ids": [TURN]}, "ok.", TURN),
        ({"stop": ["<turn>"]}, "ok.", "<turn>"),
        ({"stop_token_ids": [TURN], **SHOWN}, "ok.", TURN),
        (
            {"stop_token_ids": [TURN], **SHOWN, "include_stop_str_in_output": True},
            "ok.<turn>",
            TURN,
        ),
        ({"stop": ["<turn>"], **SHOWN}, "ok.", "<turn>"),
        ({"stop": [".<turn>"]}, "ok", ".<turn>"),
        ({"stop": [".<turn>"], **SHOWN}, "ok", ".<turn>"),
        ({"stop": ["<turn>"], "stop_token_ids": [TURN]}, "ok.", TURN),
    ],
)
def test_nothing_visible_is_cut(
    server: HttpServer, fields: dict[str, Any], text: str, found: object
) -> None:
    for answer in (server.complete("@", max_tokens=16, **fields), server.chat("@", **fields)):
        assert answer.text == text
        assert answer.ending == ("stop", found)
        assert answer.num_tokens == 4  # The hidden token counts.


def test_a_hidden_token_in_passing(server: HttpServer) -> None:
    """Not a stop: it shows nothing, and the texts around it are neighbours."""
    assert server.complete("@", max_tokens=16).text == "ok.x"
    assert server.complete("@", max_tokens=16, **SHOWN).text == "ok.<turn>x"
    assert server.complete("@", max_tokens=16, stop=[".x"]).text == "ok"
