"""How kakeya-nano is made: text that this package writes, a tokenizer, a training loop, and tests on held-out text."""
