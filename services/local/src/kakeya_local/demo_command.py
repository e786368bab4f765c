"""`kakeya demo`."""

import argparse
from pathlib import Path

SUMMARY = "run long conversations on a throw-away stack and check every byte of their KV"

_DEFAULT_TURNS = 40
_DEFAULT_SINK, _DEFAULT_WINDOW = 4, 64


def main(argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    import asyncio

    from kakeya_local.demo import DemoOptions, demo

    has_defaults = arguments.sink + arguments.window <= _DEFAULT_SINK + _DEFAULT_WINDOW
    options = DemoOptions(
        model=arguments.model,
        num_turns=arguments.turns,
        num_conversations=arguments.conversations,
        num_workers=arguments.workers,
        sink=arguments.sink,
        window=arguments.window,
        json_file=arguments.json,
        long_histories=has_defaults and arguments.turns >= _DEFAULT_TURNS,
    )
    return asyncio.run(demo(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kakeya demo",
        description=SUMMARY,
        epilog="Exit status: 0 when kv_live_bytes was right at every turn, 1 when it was not or the stack failed.",
    )
    add = parser.add_argument
    add("--model", metavar="DIR", help="model directory or hub id (default: the demo checkpoint, made once)")
    add("--turns", type=_positive, default=_DEFAULT_TURNS, metavar="N", help="of each conversation (default: 40)")
    add("--conversations", type=_positive, default=3, metavar="N", help="interleaved, turn by turn (default: 3)")
    add("--workers", type=_positive, default=2, metavar="N", help="worker processes (default: 2)")
    add("--sink", type=_natural, default=_DEFAULT_SINK, metavar="S", help="sink tokens of a session (default: 4)")
    add("--window", type=_positive, default=_DEFAULT_WINDOW, metavar="W", help="window of a session (default: 64)")
    add("--json", type=Path, metavar="FILE", help="write sink, window, kv_bytes_per_token and all turns to FILE")
    return parser


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number
