"""The demo checkpoint: a small seeded random Qwen3 model with a real tokenizer, made on this machine in a second.

It speaks nonsense, but of the right shape: every code path of a real checkpoint runs, nothing is downloaded.
"""
