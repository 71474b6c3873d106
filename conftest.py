"""Settings of every test tree."""

import os

from hypothesis import settings

# Half of hypothesis' own number, and no limit of time for one: the tests share a busy machine. The
# same examples every time, so that a change is judged by what it changed; new ones on demand.
settings.register_profile(
    "suite",
    settings(),
    max_examples=50,
    deadline=None,
    derandomize="PEGAINFER_NEW_EXAMPLES" not in os.environ,
)
settings.load_profile("suite")
