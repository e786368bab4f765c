"""Mistral (arXiv 2310.06825): a Llama whose first release attends over a window of its own in every layer."""

from collections.abc import Mapping
from typing import Any, Final

from kakeya_worker.models.config_reader import ConfigReader
from kakeya_worker.models.model_config import ModelConfig, parse_decoder

DEFAULTS: Final[Mapping[str, Any]] = {
    "vocab_size": 32_000,
    "hidden_size": 4_096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "sliding_window": 4_096,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
}


def parse(config: ConfigReader) -> ModelConfig:
    # Absent, it is that of the first release; null, there is none.
    is_unbounded = config.get("sliding_window") is None
    return parse_decoder(config, sliding_window=None if is_unbounded else config.integer("sliding_window"))
