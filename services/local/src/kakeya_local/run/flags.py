"""Flags of `kakeya run`: those of a talk, and of the stack that is started for it. Each has an environment variable."""

import argparse
import os
from collections.abc import Mapping
from typing import Final, Literal

from kakeya.cli.flags import chat_flags
from kakeya.cli.flags.variable_flags import VariableFlags, whole_number
from kakeya_shared.settings.window import MAX

PREFIX: Final = "KAKEYA_RUN_"
_MOST_TOKENS: Final = 4096  # of an answer: what a lane's usual window holds
_EPILOG: Final = """\
In the chat: /info describes the session, /bye, /quit or Ctrl-D leaves, Ctrl-C stops the answer that is running, or
leaves if none is. Then all that was started is stopped, and nothing is kept. With PROMPT, or where standard input is no
terminal, one answer goes to standard output, and everything else to standard error.

Variables of the parts (KAKEYA_WORKER_BACKEND, KAKEYA_WORKER_WEIGHTS, ...) reach them. `kakeya up` serves a model for
longer, and to others. Exit status: 0, 1 where something fails, 2 for flags that make no sense.

examples:
  kakeya run kakeya-nano
  kakeya run ~/models/SmolLM2-135M-Instruct.Q4_1.gguf "What is the capital of France?"
  kakeya run ollama:smollm2:135m --temperature 0.8 < question.txt
"""


def parser(summary: str, environment: Mapping[str, str] = os.environ) -> argparse.ArgumentParser:
    """The parser; a flag wins over its variable, a variable over the default."""
    result = argparse.ArgumentParser(
        prog="kakeya run",
        description=f"{summary.capitalize()}.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument(
        "model",
        metavar="MODEL",
        help="a directory, FILE.gguf, ollama:NAME[:TAG], the name of an installed model, or a hub id",
    )
    result.add_argument(
        "prompt", metavar="PROMPT", nargs="*", default=(), help="is answered once; behind what standard input says"
    )
    flags = VariableFlags(result, PREFIX, environment)
    flags.add(
        "window",
        None,
        "tokens that the model sees at once, besides its first ones; max is as many as fit. Default: at most 4096",
        type=_window,
        metavar="N|max",
    )
    flags.add("threads", None, "compute threads. Default: the usable processors", type=whole_number(1), metavar="N")
    chat_flags.add_talk(flags, max_tokens=_MOST_TOKENS)
    flags.switch("no-color", "plain text", "NO_COLOR")
    return result


def _window(text: str) -> int | Literal["max"]:
    return MAX if text == MAX else whole_number(1)(text)
