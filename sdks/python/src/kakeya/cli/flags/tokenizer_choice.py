"""Which tokenizer a chat takes: the one that is named, else that of the installed model which will answer."""

import os
from collections.abc import Sequence
from pathlib import Path

from kakeya.cli.flags import installed_models
from kakeya.results import ServedModel
from kakeya.text.chat_tokenizer import TokenizerError

CURE = "pass --tokenizer with the model's directory or Hub id, or set KAKEYA_TOKENIZER"


def resolve(name: str) -> str:
    """What a name stands for: a tokenizer's directory, an installed model, else a Hub id. Raises TokenizerError."""
    if os.path.isfile(os.path.join(os.path.expanduser(name), "tokenizer_config.json")):
        return name
    directory = _installed(name)
    return name if directory is None else str(directory)


def model_to_answer(served: Sequence[ServedModel], wanted: str | None) -> ServedModel:
    """The model that a session will be of.

    Args:
        served: what the runtime says that it serves.
        wanted: the model that was asked for; None for the default one.

    Raises:
        TokenizerError: it is not known which model that is, or nobody serves it.
    """
    for model in served:
        if model.name == wanted or (not wanted and model.is_default):
            return model
    names = ", ".join(model.name for model in served) or "none"
    if wanted:
        raise TokenizerError(f"no worker serves the model {wanted!r} (served: {names})")
    raise TokenizerError(_no_default(served, names))


def installed_tokenizer(model: str) -> str:
    """The directory of the installed model's files. Raises TokenizerError."""
    directory = _installed(model)
    if directory is None:
        raise TokenizerError(f"which tokenizer? The model is {model!r}, and none of that name is installed: {CURE}")
    return str(directory)


def of_another_model(tokenizer: str, reason: str) -> TokenizerError:
    """The error where a tokenizer makes ids that the model does not know."""
    return TokenizerError(f"the tokenizer {tokenizer} is another model's ({reason}); {CURE}")


def _installed(model: str) -> Path | None:
    try:
        return installed_models.directory(model)
    except installed_models.BrokenModel as error:
        raise TokenizerError(f"{error}; {CURE}") from error


def _no_default(served: Sequence[ServedModel], names: str) -> str:
    match served:
        case []:
            return f"which tokenizer? No worker serves a model now: start one, or {CURE}"
        case [model]:
            # A router that was told none takes the only one: so it was told another.
            return f"no worker serves the router's default model; --model {model.name} takes the one that is served"
        case _:
            return f"which model? Several are served and none of them is the default, name one with --model: {names}"
