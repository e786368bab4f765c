"""Models in GGUF files: what one says of its model in the words of a config.json, and its tensors as floats."""
