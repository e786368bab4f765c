"""Text and tokens: for whoever speaks with a model in words. Needs the extra [tokenizer]."""
