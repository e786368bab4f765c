"""What a rival's KV weighs, computed: nobody outside its process can see it."""

from dataclasses import dataclass
from pathlib import Path

from kakeya.bench import kv_bytes
from kakeya.bench.kv_bytes import ConfigError
from kakeya.cli.flags import installed_models
from kakeya.cli.flags.installed_models import BrokenModel

DTYPE = "float16"
"""llama.cpp's default, and as large as bfloat16, which others keep."""


@dataclass(frozen=True, slots=True)
class RivalKv:
    """What a token weighs.

    Attributes:
        bytes_per_token: None where it cannot be computed.
        why_not: why it cannot.
    """

    bytes_per_token: int | None
    why_not: str = ""


def gather(model: str, config: Path | None) -> RivalKv:
    """From the config.json that is named, else from the installed model's. Raises ConfigError where it is named."""
    if config is not None:
        return RivalKv(_bytes_per_token(config))
    try:
        directory = installed_models.directory(model)
        if directory is not None:
            return RivalKv(_bytes_per_token(directory))
    except (ConfigError, BrokenModel) as error:
        return RivalKv(None, str(error))
    return RivalKv(None, f"the config.json of {model!r} is not known: name it with --config")


def _bytes_per_token(config: Path) -> int:
    return kv_bytes.kv_bytes_per_token(kv_bytes.read_config(config), DTYPE)
