"""Kimi-K2 for pegainfer."""
