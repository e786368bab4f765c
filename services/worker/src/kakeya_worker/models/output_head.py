"""Which matrix makes logits of hidden vectors: one of the checkpoint's own, or its embedding once more.

The weights decide, and config.json only where they leave it open, as in transformers (`tie_weights`): files are made
of others by tools that do not keep `tie_word_embeddings` true.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

import structlog

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.language_part import name_of
from kakeya_worker.models.model_config import ModelConfig

EMBEDDING: Final = "model.embed_tokens"
HEAD: Final = "lm_head"

_log = structlog.get_logger()


def plain_names(stored: Iterable[str]) -> dict[str, str]:
    """A checkpoint's names of tensors by what they are called where the language model is all there is.

    A table that stands in the file as the head alone is the embedding.
    """
    names = {name_of(name): name for name in stored}
    if any(_module(name) == EMBEDDING for name in names):
        return names
    return {name.replace(HEAD, EMBEDDING, 1) if _module(name) == HEAD else name: names[name] for name in names}


def settled(config: ModelConfig, names: Collection[str], are_equal: Callable[[], bool]) -> ModelConfig:
    """A config whose `tied_head` is what the weights hold.

    Args:
        config: as config.json has it.
        names: of all tensors, plain.
        are_equal: whether head and embedding are, where both are there.

    Raises:
        ModelRefused: there is only one of them, and it is not said to be both.
    """
    if not any(_module(name) == HEAD for name in names):
        if not config.tied_head:
            raise ModelRefused(
                f"the weights do not hold both {EMBEDDING}.weight and {HEAD}.weight, and config.json does not say "
                "that they are one (tie_word_embeddings)"
            )
        return config
    if not config.tied_head or are_equal():
        return config
    _log.warning(
        "the weights hold an output head that is not the embedding, and it is used; config.json says that they are one",
        cure="set tie_word_embeddings to false there",
    )
    return replace(config, tied_head=False)


def _module(tensor: str) -> str:
    return tensor.rpartition(".")[0]
