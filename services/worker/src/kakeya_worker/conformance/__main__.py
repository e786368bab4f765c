"""`python -m kakeya_worker.conformance BACKEND [PYTEST OPTIONS]`: whether a verifier plugin keeps the law."""

import importlib.util
import os
import sys
from pathlib import Path

from kakeya_shared import plugins
from kakeya_worker.conformance.tools.subject import VERIFIERS

_USAGE = """\
usage: python -m kakeya_worker.conformance BACKEND [PYTEST OPTIONS]

Runs the conformance suite of the verifier seam over an installed plugin.

  BACKEND         its name in the entry point group kakeya.verifier (installed: {installed})
  PYTEST OPTIONS  handed on; -m 'not heavy' leaves out what takes minutes
"""
_SUITE = Path(__file__).parent
_TOOLS = ("pytest", "hypothesis")


def main(arguments: list[str]) -> int:
    usage = _USAGE.format(installed=", ".join(plugins.names(VERIFIERS)) or "none")
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage, end="")
        return 0 if arguments else 2
    backend, *options = arguments
    if backend.startswith("-"):
        print(usage + f"\nerror: name the backend before the option {backend}", file=sys.stderr)
        return 2
    if missing := [tool for tool in _TOOLS if not importlib.util.find_spec(tool)]:
        print(f"error: {' and '.join(missing)} missing: pip install 'kakeya-worker[conformance]'", file=sys.stderr)
        return 2
    import pytest

    settings = ("-c", str(_SUITE / "suite.ini"), "--rootdir", os.curdir, "-p", "no:cacheprovider")
    return pytest.main([*settings, str(_SUITE), "--backend", backend, *options])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
