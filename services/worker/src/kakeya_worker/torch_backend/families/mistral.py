"""Mistral (arXiv 2310.06825): a Llama whose first release attends over a window of its own in every layer."""

from kakeya_worker.torch_backend.model_config import ConfigReader, ModelConfig, parse_decoder


def parse(config: ConfigReader) -> ModelConfig:
    window = config.integer("sliding_window") if config.get("sliding_window") is not None else None
    return parse_decoder(config, sliding_window=window)
