"""Flags of `kakeya chat`, and of others who talk with a model; each has an environment variable."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kakeya.cli.flags import connection_flags
from kakeya.cli.flags.variable_flags import VariableFlags, whole_number

PREFIX = "KAKEYA_CHAT_"

_SAMPLING = (
    "max_tokens", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "seed",
)  # fmt: skip


def parser(summary: str, environment: Mapping[str, str] = os.environ) -> argparse.ArgumentParser:
    """The parser; a flag wins over its variable, a variable over the default."""
    result = argparse.ArgumentParser(
        prog="kakeya chat",
        description=f"{summary.capitalize()}. Only new tokens are sent with each turn; the rest stays on "
        "the server. Answers go to standard output, everything else to standard error.",
        epilog="In the chat: /info describes the session, /quit, /bye or Ctrl-D leaves and closes it, "
        "Ctrl-C stops the answer that is running, or leaves if none is.",
    )

    flags = VariableFlags(result, PREFIX, environment)
    connection_flags.add(result, environment, address_variables=(f"{PREFIX}ADDRESS", "KAKEYA_ADDRESS"))
    flags.add("model", None, "model to be served by, where the runtime serves several")
    flags.add(
        "tokenizer",
        None,
        "directory, FILE.gguf, ollama:NAME[:TAG], installed model or Hub id of the tokenizer, else $KAKEYA_TOKENIZER, "
        "else the installed model of the name that is served",
        metavar="DIR",
    )
    add_talk(flags, max_tokens=512)
    flags.switch(
        "inexact-resume",
        "may go on under another fingerprint of the model, such as another backend, where none of its own has room",
    )
    flags.switch("no-color", "plain text", "NO_COLOR")
    return result


def add_talk(flags: VariableFlags, *, max_tokens: int) -> None:
    """What is said and how answers are made.

    Args:
        max_tokens: of an answer, where nothing else is asked for.
    """
    flag = flags.add
    flag(
        "chat-template",
        None,
        "file with a chat template (Jinja) that takes the place of the tokenizer's own",
        type=Path,
        metavar="FILE",
    )
    flag("system", None, "system prompt, before the first turn; it is pinned and never forgotten", metavar="TEXT")
    flags.switch("no-pin", "let the system prompt be forgotten like everything else")
    flag("max-tokens", max_tokens, "most tokens of an answer", type=whole_number(1), metavar="N")
    flag("temperature", None, "0 or unset is greedy", type=float, metavar="T")
    flag("top-p", None, "keep the most probable tokens up to this mass", type=float, metavar="P")
    flag("top-k", None, "keep this many tokens", type=whole_number(1), metavar="K")
    flag("min-p", None, "keep tokens at least this many times as likely as the likeliest", type=float, metavar="P")
    flag("presence-penalty", None, "-2 to 2, off the logit of what the answer has", type=float, metavar="N")
    flag("frequency-penalty", None, "-2 to 2, off it for each time that it has it", type=float, metavar="N")
    flag("seed", None, "makes sampling repeatable", type=int, metavar="N")


def sampling(flags: argparse.Namespace) -> dict[str, Any]:
    """Those that go to each turn as they are."""
    return {name: getattr(flags, name) for name in _SAMPLING}
