"""config.json, read by name."""

from typing import Any

from kakeya_worker.engine.seams.verifier import ModelRefused


class ConfigReader:
    """config.json, read by name; raises ModelRefused where something is missing, garbled or cannot run."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or the default where it is absent or null."""
        value = self._config.get(name)
        return default if value is None else value

    def integer(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number of at least `least`, and below 2^31."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
            raise ModelRefused(f"config.json: {name} must be a whole number of at least {least}, not {_short(value)}")
        return value

    def number(self, name: str, default: float) -> float:
        """A positive number."""
        return positive(name, self.get(name, default))

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise ModelRefused(f"config.json: {name} must be true or false, not {_short(value)}")
        return value

    def entries(self, name: str) -> list[Any]:
        """A list; empty where it is absent."""
        value = self.get(name, [])
        if not isinstance(value, list):
            raise ModelRefused(f"config.json: {name} must be a list, not {_short(value)}")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """An object; empty where it is absent."""
        value = self.get(name, {})
        if not isinstance(value, dict):
            raise ModelRefused(f"config.json: {name} must be an object, not {_short(value)}")
        return value


def positive(name: str, value: object) -> float:
    """A number above 0. Raises ModelRefused."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-30 < value < 1e30:
        raise ModelRefused(f"config.json: {name} must be a positive number, not {_short(value)}")
    return float(value)


def _short(value: object) -> str:
    """A value as an error message can hold it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
