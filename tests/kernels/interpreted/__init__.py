"""Triton kernels run by Triton's interpreter, on host memory in place of a device's."""
