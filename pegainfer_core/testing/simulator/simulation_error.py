"""What a simulation raises when the simulated engine breaks a rule."""


class SimulationError(AssertionError):
    """A wrong token, a lost page, a request without an end: a bug of the scheduler or the pages."""
