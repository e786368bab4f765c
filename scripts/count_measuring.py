"""Counts the lines that measure and draw, with their tests: they are to stay a small part of the repository.

    python scripts/count_measuring.py [--verbose]

Every line counts, blank ones and comments too, of code, templates and styles. What makes faults and load to prove the
product (chaos, fuzz, overload) is not counted: that is proof, not measuring.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATHS = (
    "bench/src",
    "tests/benchmarks",
    "tests/unit/bench",
    "tests/integration/test_compare_bench.py",
    "tests/integration/test_load_bench.py",
    "tests/integration/test_session_bench.py",
)
SUFFIXES = (".py", ".html", ".css", ".cpp")
MOST_LINES = 15_000


def files() -> Iterator[Path]:
    for path in (ROOT / each for each in PATHS):
        yield from [path] if path.is_file() else (file for file in path.rglob("*") if file.suffix in SUFFIXES)


def counted() -> Counter[str]:
    """Lines by room: two folders below the listed path."""
    lines: Counter[str] = Counter()
    for file in files():
        if "__pycache__" not in file.parts:
            lines["/".join(file.relative_to(ROOT).parts[:4])] += len(file.read_text().splitlines())
    return lines


def main(argv: list[str]) -> int:
    lines = counted()
    if "--verbose" in argv:
        for room, number in sorted(lines.items()):
            print(f"{number:7,}  {room}")
    total = sum(lines.values())
    print(f"{total:7,}  lines that measure and draw, of at most {MOST_LINES:,}")
    return int(total > MOST_LINES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
