"""O01: a failed step is the matter of its requests; a lost device is everybody's.

In both transports: `--in-process` and with an engine process.
"""

from __future__ import annotations

import concurrent.futures
from pathlib import Path

import pytest

from tests.cases.faulty_plugin import FAILS_THE_STEP, LOSES_THE_DEVICE, FaultyModel
from tests.cases.http_server import COMPLETIONS, JsonObject, error_of
from tests.cases.serve_process import serve_process

ENDED_S = 20.0
SHORT: JsonObject = {"max_tokens": 4, "temperature": 0}
LONG: JsonObject = {"prompt": "A", "max_tokens": 60_000, "temperature": 0}


@pytest.mark.parametrize("flags", ["", "--in-process"])
def test_failed_steps_and_then_a_lost_device(tmp_path: Path, flags: str) -> None:
    model = FaultyModel(tmp_path)
    words = [model.folder, "--family", "faulty", *flags.split()]
    with serve_process(*words, log=tmp_path / "log", env=model.env) as started:
        server = started.wait_ready()
        for stream in (False, True):
            asked = {"prompt": f"{FAILS_THE_STEP}x", "stream": stream, **SHORT}
            # Nothing was streamed yet, so a stream too ends as a plain error.
            error = error_of(server.post(COMPLETIONS, asked), 500)
            assert "ArithmeticError: asked to fail" in error["message"]
            assert server.get("/health").status_code == 200
            assert server.complete("A", max_tokens=4).text == "AAAA"
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(server.post, COMPLETIONS, LONG)
            server.wait_for(lambda: server.load()[0] == 1)
            lost = server.post(COMPLETIONS, {"prompt": LOSES_THE_DEVICE, **SHORT})
            for response in (lost, waiting.result(ENDED_S)):
                assert "GPU 0 (Test) cannot be used any more" in error_of(response, 500)["message"]
            server.wait_for(lambda: server.get("/health").status_code == 503)
            assert server.get("/health").json()["status"] == "dead"
        assert started.wait_exit(ENDED_S) == 1, started.output()
        assert "GPU 0 (Test) cannot be used any more" in started.output()
