"""What a config.json says of weights that MLX quantized."""

from dataclasses import dataclass
from typing import Any

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.language_part import name_of

_KEYS = ("quantization", "quantization_config")


@dataclass(frozen=True)
class Quantization:
    """MLX's, by group along the input.

    Attributes:
        settings: as mlx-lm writes them: group_size, bits, mode, and those of single matrices by their name.
    """

    settings: dict[str, Any]

    @property
    def mode(self) -> str:
        """As it is reported: "4bit", "8bit", or the name of a format such as "mxfp4"."""
        mode = self.settings.get("mode", "affine")
        return f"{self.settings['bits']}bit" if mode == "affine" else str(mode)


def split(config: dict[str, Any]) -> tuple[Quantization | None, dict[str, Any]]:
    """The quantization, if any, and the config without it.

    Raises:
        ModelRefused: something else than MLX has quantized the weights.
    """
    given = next((config[key] for key in _KEYS if config.get(key)), None)
    plain = {name: value for name, value in config.items() if name not in _KEYS}
    if given is None:
        return None, plain
    if not isinstance(given, dict) or not all(_is_count(given.get(name)) for name in ("group_size", "bits")):
        raise ModelRefused("weights that others have quantized cannot run; what can: floats, and quantized by mlx-lm")
    return Quantization({name_of(name): value for name, value in given.items()}), plain


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
