"""The model families that can run: one module each, named as `model_type` in config.json.

A family is a function `parse(ConfigReader) -> ModelConfig` that says in what it differs from the others, and
`DEFAULTS`: what its config class in transformers takes where a config.json leaves something out. The values differ by
family, and those of models within others (`text_config`) are left out wherever they are the family's own.
"""

import importlib
import pkgutil
from typing import Any

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.config_reader import ConfigReader
from kakeya_worker.models.model_config import ModelConfig


def names() -> list[str]:
    """The values of `model_type` that can run, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def parse(config: dict[str, Any]) -> ModelConfig:
    """Reads a config.json. Raises ModelRefused for another family, or one that would break the engine's law."""
    family = config.get("model_type")
    if family not in names():
        raise ModelRefused(f"model_type {family!r} cannot run; what can: {', '.join(names())}")
    module = importlib.import_module(f"{__name__}.{family}")
    parsed: ModelConfig = module.parse(ConfigReader({**module.DEFAULTS, **config}))
    return parsed
