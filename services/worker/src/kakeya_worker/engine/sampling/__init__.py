"""A token chosen from logits, with bits that are the same everywhere."""
