"""The language model of a checkpoint that has other parts beside it, such as a vision tower.

Its config stands in `text_config` (Llava, Mistral 3 and others of transformers), its tensors below a name of their own.
"""

from typing import Any

# What may be said of all parts at once.
_OF_ALL = ("torch_dtype", "dtype", "quantization", "quantization_config")
_HEAD = "tie_word_embeddings"  # the head is not of the part: transformers goes by what is said outside of it
# As transformers 5 and as earlier versions, mlx-lm and mlx-vlm write them.
_PREFIXES = (("model.language_model.", "model."), ("language_model.", ""))


def config_of(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's own config.json, if it has one inside of another."""
    part = config.get("text_config")
    if not isinstance(part, dict):
        return config
    of_all, of_head = ({name: config[name] for name in names if name in config} for names in (_OF_ALL, [_HEAD]))
    return of_all | part | of_head


def name_of(tensor: str) -> str:
    """What a tensor, or a module, is called where the language model is all there is."""
    for prefix, plain in _PREFIXES:
        if tensor.startswith(prefix):
            return plain + tensor.removeprefix(prefix)
    return tensor
