"""The tool that the drivers offer their models."""


def get_weather(city: str, days: int) -> str:
    """How the weather will be.

    Args:
        city: where.
        days: how many of them.
    """
    return f"{days} days of sun in {city}"
