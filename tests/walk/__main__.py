"""The way of an append and of a generate through SDK, router and worker: which files, in which order, what for.

    python -m tests.walk [--json FILE]

Both are traced in one process, after a warm-up, until nothing of ours goes on any more. An append has 2 tokens, a
generate 8. Each is made several times, and the shortest way is told. What is counted: `tests.walk.way`. Commit 95cc93b
has 53 files, 23 of the router and 91 returns to these for the append, and 57, 24 and 123 for the generate.
"""

import argparse
import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

import kakeya
from tests.walk.one_process import one_process
from tests.walk.way import Watch, Way, purpose

# So few that each traced append finds a history for which no snapshot is thought of.
_TOKENS = (5, 6)
_NUM_GENERATED = 8
_NUM_WARM = 2
_NUM_TRACED = 3


async def walk(directory: Path) -> dict[str, Way]:
    """The ways of an append and a generate."""
    watch = Watch()
    with watch.watching():
        async with one_process(directory) as runtime, kakeya.AsyncClient(runtime.address) as client:
            watch.background = runtime.background
            async with await client.create_session() as session:

                async def append() -> None:
                    await session.append(_TOKENS)

                async def generate() -> None:
                    async for _ in session.generate(max_tokens=_NUM_GENERATED):
                        pass

                for _ in range(_NUM_WARM):
                    await append()
                    await generate()
                return {"append": await _shortest(append, watch), "generate": await _shortest(generate, watch)}


async def _shortest(call: Callable[[], Awaitable[None]], watch: Watch) -> Way:
    ways = []
    await watch.quiet()
    watch.take()
    for _ in range(_NUM_TRACED):
        await call()
        await watch.quiet()
        ways.append(watch.take())
    return min(ways, key=lambda way: tuple(way.figures().values()))


def show(name: str, way: Way) -> None:
    """Prints the files of a way, and what each does there."""
    for number, file in enumerate(way.files, 1):
        print(f"{number:4} {file}: {purpose(file)}")
        print(f"       {', '.join(way.functions(file))}")
    print(
        f"{name}: {len(way.files)} files, {len(way.router_files)} of the router, {way.num_returns} returns to these\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=None, help="where to write the figures")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as directory:
        ways = asyncio.run(walk(Path(directory)))
    for name, way in ways.items():
        show(name, way)
    if arguments.json:
        arguments.json.write_text(json.dumps({name: way.figures() for name, way in ways.items()}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
