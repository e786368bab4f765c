"""A chat template that a user brings, in a file of its own."""

import os
from pathlib import Path
from typing import Final

from kakeya.errors import MissingExtra
from kakeya.text.tokenizer_error import TokenizerError

_MOST_BYTES: Final = 1 << 20
"""More than any template has that is taken."""


def read(path: Path) -> str:
    """Its source, which Jinja has read.

    Raises:
        MissingExtra: the extra [tokenizer] is not installed.
        TokenizerError: the file cannot be read, is empty, or holds no template of Jinja.
    """
    try:
        from jinja2 import TemplateSyntaxError

        from kakeya.text.rendering import template
    except ImportError as error:
        raise MissingExtra("a chat template", "tokenizer") from error
    source = _content(path)
    try:
        template.compiled(source)
    except TemplateSyntaxError as error:
        raise TokenizerError(f"the chat template {path} is not Jinja: line {error.lineno}: {error.message}") from error
    except Exception as error:  # whatever else a text makes of a compiler, such as one that nests too deep
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TokenizerError(f"the chat template {path} cannot be used: {reason}") from error
    return source


def _content(path: Path) -> str:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise TokenizerError(f"the chat template {path} cannot be used: it has more than {_MOST_BYTES:,} bytes")
        text = content.decode("utf-8")
    except OSError as error:
        raise TokenizerError(f"the chat template {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise TokenizerError(f"the chat template {path} cannot be read: it is no text in UTF-8") from error
    if not text.strip():
        raise TokenizerError(f"the chat template {path} is empty")
    return text
