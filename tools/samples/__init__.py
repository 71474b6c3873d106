"""Parts of `tools/train_samples.py`: corpus, tokenizer, model table, training, quality check."""
