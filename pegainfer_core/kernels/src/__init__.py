"""Triton sources. Imported by the compiler and by tests only: the engine loads cubins."""
