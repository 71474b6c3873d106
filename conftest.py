"""Settings of every test tree."""

from hypothesis import settings

# Half of hypothesis' own number, and no limit of time for one: the tests share a busy machine.
settings.register_profile("suite", settings(), max_examples=50, deadline=None)
settings.load_profile("suite")
