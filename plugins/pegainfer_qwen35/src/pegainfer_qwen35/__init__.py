"""Qwen3.5 for pegainfer."""
