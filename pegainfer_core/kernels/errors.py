"""What goes wrong with kernels in a way the user can mend."""

from pegainfer_core.weights.errors import ConfigError


class KernelError(ConfigError):
    """A kernel cannot be built, or what was built cannot be used."""
