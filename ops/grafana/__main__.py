"""Writes the dashboards, or says which of them are not what their declarations make of them.

python -m ops.grafana [--check]
"""

import argparse
import sys
from pathlib import Path

from ops.grafana.board import document
from ops.grafana.boards import BOARDS

DIRECTORY = Path(__file__).parent / "dashboards"


def main(argv: list[str]) -> int:
    """Exit status 1: `--check`, and one differs."""
    parser = argparse.ArgumentParser(description="Writes Kakeya's dashboards for Grafana.")
    parser.add_argument("--check", action="store_true", help="write nothing; say which files differ")
    is_check = parser.parse_args(argv).check
    stale = []
    for board in BOARDS:
        file, made = DIRECTORY / f"{board.uid}.json", document(board)
        if not is_check:
            file.write_text(made)
        elif not file.is_file() or file.read_text() != made:
            stale.append(file.name)
    for name in stale:
        print(f"ops/grafana/dashboards/{name} differs (make dashboards)")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
