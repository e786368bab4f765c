"""The language model of a checkpoint that has other parts beside it, such as a vision tower.

Its config stands in `text_config` (Llava, Mistral 3 and others of transformers), its tensors below a name of their own.
"""

from typing import Any

# What may be said of all parts at once.
_OF_ALL = ("torch_dtype", "dtype", "quantization", "quantization_config")
_TIES = "tie_word_embeddings"
# The family of the part, and whether its embedding is the head, where nothing is said; transformers' config classes.
_WRAPPERS = {
    "audioflamingo3": ("qwen2", False),
    "deepseek_vl": ("llama", True),
    "deepseek_vl_hybrid": ("llama", True),
    "fast_vlm": ("qwen2", False),
    "fun_asr_nano": ("qwen3", True),
    "glmasr": ("llama", True),
    "got_ocr2": ("qwen2", True),
    "internvl": ("qwen2", True),
    "janus": ("llama", True),
    "lighton_ocr": ("qwen3", True),
    "llava": ("llama", False),
    "llava_next": ("llama", False),
    "llava_next_video": ("llama", False),
    "llava_onevision": ("qwen2", False),
    "mistral3": ("mistral", True),
    "moss_transcribe_diarize": ("qwen3", True),
    "musicflamingo": ("qwen2", False),
    "ovis2": ("qwen2", True),
    "perception_lm": ("llama", False),
    "qianfan_ocr": ("qwen3", False),
    "qwen2_audio": ("qwen2", False),
    "qwen3_asr": ("qwen3", True),
    "vibevoice": ("qwen2", False),
    "vibevoice_asr": ("qwen2", False),
    "video_llama_3": ("qwen2", False),
    "video_llava": ("llama", False),
    "vipllava": ("llama", False),
    "voxtral": ("llama", False),
}
# What these two take for what `text_config` leaves out, before the family's own defaults.
_PARTS: dict[str, dict[str, Any]] = {
    "glmasr": {
        "vocab_size": 59_264,
        "hidden_size": 2_048,
        "intermediate_size": 6_144,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "max_position_embeddings": 8_192,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"},
    },
    "voxtral": {
        "vocab_size": 131_072,
        "hidden_size": 3_072,
        "intermediate_size": 8_192,
        "num_hidden_layers": 30,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100_000_000.0,
        "head_dim": 128,
    },
}
# As transformers 5 and as earlier versions, mlx-lm and mlx-vlm write them.
_PREFIXES = (("model.language_model.", "model."), ("language_model.", ""))


def config_of(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's own config.json, if it has one inside of another."""
    part = config.get("text_config")
    if not isinstance(part, dict):
        return config
    wrapper = str(config.get("model_type"))
    family, ties = _WRAPPERS.get(wrapper, (None, False))
    of_all = {name: config[name] for name in _OF_ALL if name in config}
    completed = {"model_type": family} | of_all | _PARTS.get(wrapper, {}) | part
    # The head is not of the part, and yet transformers wrote this into the part for long: either may say it.
    said = config.get(_TIES, ties)
    return completed | ({_TIES: said} if said and not part.get(_TIES) else {})


def name_of(tensor: str) -> str:
    """What a tensor, or a module, is called where the language model is all there is."""
    for prefix, plain in _PREFIXES:
        if tensor.startswith(prefix):
            return plain + tensor.removeprefix(prefix)
    return tensor
