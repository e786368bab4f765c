"""The models that the runtime serves, each with its tokenizer."""
