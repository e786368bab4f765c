"""Text and tokens: for programs that speak with a model in words. Needs the extra [tokenizer]."""
