"""What ends a bench before its end."""


class CannotMeasure(Exception):
    """The bench cannot run, or not as asked; the message says why and what can be done."""


INSTALL = "pip install 'kakeya-worker[torch,bench]'"


def missing(module: str | None) -> CannotMeasure:
    """The error for a library that is not installed."""
    return CannotMeasure(f"the module {module!r} is missing; install it with: {INSTALL}")
