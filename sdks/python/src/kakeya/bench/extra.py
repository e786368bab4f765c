"""The extra [bench]: what draws, shows progress and reads the memory of processes."""

from kakeya.errors import MissingExtra


def require(feature: str) -> None:
    """Said before anything is measured. Raises MissingExtra."""
    try:
        import matplotlib  # noqa: F401
        import psutil  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        raise MissingExtra(feature, "bench") from error
