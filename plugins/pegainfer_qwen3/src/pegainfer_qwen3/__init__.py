"""Qwen3 (dense) for pegainfer."""
