"""Echo: a complete model family with no model."""
