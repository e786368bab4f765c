"""Mistral (arXiv 2310.06825): a Llama whose first release attends over a window of its own in every layer."""

from kakeya_worker.models.config_reader import ConfigReader
from kakeya_worker.models.model_config import ModelConfig, parse_decoder


def parse(config: ConfigReader) -> ModelConfig:
    # Absent, it is that of the first release; null, there is none.
    is_unbounded = "sliding_window" in config and config.get("sliding_window") is None
    window = None if is_unbounded else config.integer("sliding_window", 4096)
    return parse_decoder(config, sliding_window=window)
