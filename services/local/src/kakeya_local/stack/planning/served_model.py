"""What clients call the model of a stack, and where its tokenizer is."""

import os
from collections.abc import Mapping
from pathlib import Path

from kakeya_local.errors import StackError
from kakeya_shared.contract import labels

TOKENIZER_VARIABLE = "KAKEYA_HTTP_TOKENIZER"
_TOKENIZER_FILES = ("tokenizer*", "vocab*", "spiece.model")


def served_name(model: str, environment: Mapping[str, str]) -> str:
    """As the workers of this environment name a model: a directory or a hub id. Raises StackError."""
    name = environment.get("KAKEYA_WORKER_SERVED_MODEL_NAME") or Path(model).name or model
    if flaw := labels.flaw(name, labels.MAX_MODEL_BYTES):
        raise StackError(f"the model's name {name!r}: {flaw}; KAKEYA_WORKER_SERVED_MODEL_NAME gives it another")
    return name


def tokenizer_pair(model: str, environment: Mapping[str, str]) -> str | None:
    """NAME=MODEL for the HTTP shim; None where the environment tells it already.

    Raises:
        StackError: the model brings no tokenizer, or cannot be said in this form.
    """
    if environment.get(TOKENIZER_VARIABLE):
        return None
    name = served_name(model, environment)
    if os.path.isdir(model) and not any(next(Path(model).glob(files), None) for files in _TOKENIZER_FILES):
        raise StackError(
            f"the model directory {model} holds no tokenizer, which HTTP needs; name one by "
            f"{TOKENIZER_VARIABLE}={name}=DIR, or do without HTTP (--http-bind none)"
        )
    pair = f"{name}={model}"
    if "=" in name or "," in pair or pair != pair.strip():
        reason = "a comma or `=` in its name or path, or a blank at the end of one"
        raise StackError(f"HTTP cannot serve {model}: {reason} (--http-bind none)")
    return pair
