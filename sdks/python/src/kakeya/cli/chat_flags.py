"""Flags of `kakeya chat`; each has an environment variable."""

import argparse
import os
from collections.abc import Mapping
from typing import Any

from kakeya.cli import connection_flags

PREFIX = "KAKEYA_CHAT_"

SAMPLING = (
    "max_tokens", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "seed",
)  # fmt: skip
"""Flags that go to each turn as they are."""


def parser(summary: str, environment: Mapping[str, str] = os.environ) -> argparse.ArgumentParser:
    """The parser; a flag wins over its variable, a variable over the default."""
    result = argparse.ArgumentParser(
        prog="kakeya chat",
        description=f"{summary.capitalize()}. Only new tokens are sent with each turn; the rest stays on "
        "the server. Answers go to standard output, everything else to standard error.",
        epilog="In the chat: /info describes the session, /quit or Ctrl-D leaves and closes it, "
        "Ctrl-C stops the answer that is running, or leaves if none is.",
    )

    def flag(name: str, default: Any, help: str, **options: Any) -> None:
        variable = PREFIX + name.upper().replace("-", "_")
        says = "" if default is None else f"default: {default}; "
        result.add_argument(
            f"--{name}",
            default=environment.get(variable) or default,
            help=f"{help} ({says}variable: {variable})",
            **options,
        )

    connection_flags.add(result, environment, address_variables=(f"{PREFIX}ADDRESS", "KAKEYA_ADDRESS"))
    flag("model", None, "model to be served by, where the runtime serves several")
    flag(
        "tokenizer",
        None,
        "directory, installed model or Hub id of the tokenizer; else $KAKEYA_TOKENIZER, else the installed model of "
        "the name that is served",
        metavar="DIR",
    )
    flag("system", None, "system prompt, before the first turn; it is pinned: never forgotten", metavar="TEXT")
    result.add_argument(
        "--no-pin",
        action="store_true",
        default=bool(environment.get(f"{PREFIX}NO_PIN")),
        help=f"let the system prompt be forgotten like everything else (variable: {PREFIX}NO_PIN)",
    )
    flag("max-tokens", 512, "most tokens of an answer", type=_positive, metavar="N")
    flag("temperature", None, "0 or unset: greedy", type=float, metavar="T")
    flag("top-p", None, "keep the most probable tokens up to this mass", type=float, metavar="P")
    flag("top-k", None, "keep this many tokens", type=_positive, metavar="K")
    flag("min-p", None, "keep tokens at least this many times as likely as the likeliest", type=float, metavar="P")
    flag("presence-penalty", None, "-2 to 2, off the logit of what the answer has", type=float, metavar="N")
    flag("frequency-penalty", None, "-2 to 2, off it for each time that it has it", type=float, metavar="N")
    flag("seed", None, "makes sampling repeatable", type=int, metavar="N")
    result.add_argument(
        "--no-color",
        action="store_true",
        default=bool(environment.get(f"{PREFIX}NO_COLOR") or environment.get("NO_COLOR")),
        help=f"plain text (variables: {PREFIX}NO_COLOR, NO_COLOR)",
    )
    return result


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
