"""Flags that every bench has: the runtime, the model, what is said, where the report goes."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kakeya.cli.flags import connection_flags
from kakeya.cli.flags.variable_flags import VariableFlags, seconds, whole_number

PREFIX = "KAKEYA_BENCH_"


@dataclass(frozen=True, slots=True)
class ConversationOptions:
    """What is said, and to whom.

    Attributes:
        model: None for the default one.
        tokenizer: a directory, an installed model or a Hub id; None for the installed model of the name that is served.
        num_random_tokens: ids a turn in place of messages; None for messages.
        prompts: a file of messages; None for those that the bench writes.
        uses_template: messages are put into the model's chat template.
        max_tokens: of an answer.
        ignores_eos: an answer has `max_tokens` tokens, whatever the model would say.
        sink, window: of each session; None takes the worker's.
        timeout_seconds: of an append, and of a generation.
    """

    model: str | None
    tokenizer: str | None
    num_random_tokens: int | None
    prompts: Path | None
    uses_template: bool
    max_tokens: int
    ignores_eos: bool
    sink: int | None
    window: int | None
    seed: int
    timeout_seconds: float


def add(parser: ArgumentParser, environment: Mapping[str, str] = os.environ, *, max_tokens: int) -> VariableFlags:
    """Adds them; returns what adds a bench's own."""
    connection_flags.add(parser, environment, address_variables=(f"{PREFIX}ADDRESS", "KAKEYA_ADDRESS"))
    flags = VariableFlags(parser, PREFIX, environment)
    flags.add("model", None, "model to be served by, where the runtime serves several", metavar="NAME")
    flags.add(
        "tokenizer",
        environment.get("KAKEYA_TOKENIZER"),
        "directory, installed model or Hub id of the tokenizer; else the installed model of the name that is served",
        metavar="DIR",
    )
    flags.add(
        "random-tokens", None, "append so many random ids a turn in place of messages; needs no tokenizer",
        type=whole_number(1), metavar="N",
    )  # fmt: skip
    flags.add("prompts", None, "file of messages, one a line; else the bench writes its own", type=Path, metavar="FILE")
    flags.switch("no-chat-template", "send messages as they are")
    flags.add("max-tokens", max_tokens, "most tokens of an answer", type=whole_number(1), metavar="N")
    flags.switch("ignore-eos", "answers all have that length, whatever the model would say")
    flags.add("sink", None, "sinks of a session; else the worker's", type=whole_number(0), metavar="TOKENS")
    flags.add("window", None, "window of a session; else the worker's", type=whole_number(1), metavar="TOKENS")
    flags.add("seed", 0, "of everything that is drawn", type=whole_number(0), metavar="N")
    flags.add(
        "timeout-s", 600.0, "of an append and of a generation; long enough for slow hosts", type=seconds, metavar="S"
    )
    return flags


def read(flags: Namespace) -> ConversationOptions:
    """What was given."""
    return ConversationOptions(
        model=flags.model,
        tokenizer=flags.tokenizer,
        num_random_tokens=flags.random_tokens,
        prompts=flags.prompts,
        uses_template=not flags.no_chat_template,
        max_tokens=flags.max_tokens,
        ignores_eos=flags.ignore_eos,
        sink=flags.sink,
        window=flags.window,
        seed=flags.seed,
        timeout_seconds=flags.timeout_s,
    )
