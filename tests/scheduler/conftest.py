"""Everything a scheduler does is tested with steps read at once and with steps launched ahead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scheduler.harness import Harness


@pytest.fixture(autouse=True, scope="module", params=[False, True], ids=["plain", "ahead"])
def launch_mode(request: pytest.FixtureRequest) -> Iterator[None]:
    Harness.ahead = request.param
    yield
    Harness.ahead = False
