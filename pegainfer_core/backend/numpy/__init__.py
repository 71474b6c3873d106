"""The NumPy backend: the embedded default, and the reference for every other backend's ops."""

from pegainfer_core.backend.numpy.numpy_backend import NumpyBackend

__all__ = ["NumpyBackend"]
