"""A failure in one line of a report."""


def describe(error: Exception) -> str:
    """Its kind and what it says."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
