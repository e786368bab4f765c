"""Flags of `kakeya chat`; each has an environment variable."""

import argparse
import os
from collections.abc import Mapping

from kakeya.cli.flags import connection_flags
from kakeya.cli.flags.variable_flags import VariableFlags, whole_number

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

    flags = VariableFlags(result, PREFIX, environment)
    flag = flags.add
    connection_flags.add(result, environment, address_variables=(f"{PREFIX}ADDRESS", "KAKEYA_ADDRESS"))
    flag("model", None, "model to be served by, where the runtime serves several")
    flag(
        "tokenizer",
        None,
        "directory, FILE.gguf, ollama:NAME[:TAG], installed model or Hub id of the tokenizer, else $KAKEYA_TOKENIZER, "
        "else the installed model of the name that is served",
        metavar="DIR",
    )
    flag("system", None, "system prompt, before the first turn; it is pinned and never forgotten", metavar="TEXT")
    flags.switch("no-pin", "let the system prompt be forgotten like everything else")
    flag("max-tokens", 512, "most tokens of an answer", type=whole_number(1), metavar="N")
    flag("temperature", None, "0 or unset is greedy", type=float, metavar="T")
    flag("top-p", None, "keep the most probable tokens up to this mass", type=float, metavar="P")
    flag("top-k", None, "keep this many tokens", type=whole_number(1), metavar="K")
    flag("min-p", None, "keep tokens at least this many times as likely as the likeliest", type=float, metavar="P")
    flag("presence-penalty", None, "-2 to 2, off the logit of what the answer has", type=float, metavar="N")
    flag("frequency-penalty", None, "-2 to 2, off it for each time that it has it", type=float, metavar="N")
    flag("seed", None, "makes sampling repeatable", type=int, metavar="N")
    flags.switch(
        "inexact-resume",
        "may go on under another fingerprint of the model, such as another backend, where none of its own has room",
    )
    flags.switch("no-color", "plain text", "NO_COLOR")
    return result
