"""`kakeya demo`."""

import argparse
from pathlib import Path

SUMMARY = "hold long conversations on a throw-away stack, with every byte of their KV checked"

_DEFAULT_SINK, _DEFAULT_WINDOW = 4, 236


def main(argv: list[str]) -> int:
    from kakeya_local.demo.scripts import NUM_TURNS, SCRIPTS
    from kakeya_local.settings import DEFAULT_MODEL

    arguments = _parser(DEFAULT_MODEL, NUM_TURNS, len(SCRIPTS)).parse_args(argv)
    import asyncio

    from kakeya_local.demo.demo import DemoOptions, demo

    sizes = (arguments.sink, arguments.window, arguments.turns)
    as_written = sizes == (_DEFAULT_SINK, _DEFAULT_WINDOW, NUM_TURNS) and arguments.conversations <= len(SCRIPTS)
    options = DemoOptions(
        model=arguments.model,
        num_turns=arguments.turns,
        num_conversations=arguments.conversations,
        num_workers=arguments.workers,
        sink=arguments.sink,
        window=arguments.window,
        json_file=arguments.json,
        has_defaults=as_written,
    )
    return asyncio.run(demo(options))


def _parser(model: str, num_turns: int, num_conversations: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kakeya demo",
        description=SUMMARY,
        epilog="Exit status: 0 when kv_live_bytes was right at every turn, 1 when it was not, when the stack failed, "
        "when the figures over HTTP were wrong, or when kakeya-nano, in a run of the default sizes, did not recall "
        "what it must.",
    )
    add = parser.add_argument
    add(
        "--model",
        metavar="NAME",
        help=f"directory, installed model or hub id (default: {model})",
    )
    add("--turns", type=_positive, default=num_turns, metavar="N", help="of each conversation (default: %(default)s)")
    add(
        "--conversations",
        type=_positive,
        default=num_conversations,
        metavar="N",
        help="interleaved, turn by turn (default: %(default)s)",
    )
    add("--workers", type=_positive, default=2, metavar="N", help="worker processes (default: %(default)s)")
    add(
        "--sink", type=_natural, default=_DEFAULT_SINK, metavar="S", help="sink tokens of a lane (default: %(default)s)"
    )
    add(
        "--window",
        type=_positive,
        default=_DEFAULT_WINDOW,
        metavar="W",
        help="window of a lane; pinned system prompts take their room from it (default: %(default)s)",
    )
    add("--json", type=Path, metavar="FILE", help="write sizes, whole transcripts and all figures to FILE")
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
