"""DeepSeek-V2 for pegainfer."""
