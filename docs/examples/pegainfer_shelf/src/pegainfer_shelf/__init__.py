"""Shelf: a KV offload tier that keeps pages in a dict."""
