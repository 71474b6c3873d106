"""Choosing tokens on the device: launches, tables of requests, results on their way back."""

from pegainfer_core.backend.cuda.sampling.cuda_choice import CudaChoice

__all__ = ["CudaChoice"]
