"""Prompts that are longer than one append may be."""

from itertools import pairwise


def parts(token_ids: list[int], longest: int) -> list[list[int]]:
    """The tokens in parts of at most `longest`."""
    borders = [*range(0, len(token_ids), longest), len(token_ids)]
    return [token_ids[start:end] for start, end in pairwise(borders)]
