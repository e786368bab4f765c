"""Whoever measures does not wait for NumPy, or for what draws, nor needs them on the host."""

import json
import re
import subprocess
import sys
from pathlib import Path

import kakeya.bench

PROGRAM = """
import importlib, json, pkgutil, sys

sys.modules["matplotlib"] = None  # as where it is not installed
import kakeya.bench

drawing = []
for module in pkgutil.walk_packages(kakeya.bench.__path__, "kakeya.bench."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        assert error.name.partition(".")[0] == "matplotlib", error
        drawing.append(module.name)
measuring = sorted(name for name in sys.modules if name.startswith("kakeya.bench."))
print(json.dumps({"drawing": drawing, "measuring": measuring, "numpy": "numpy" in sys.modules}))
"""
SHARED = (
    "bootstrap", "conversation_flags", "environment", "extra", "interruption", "kv_bytes", "percentile", "phrases",
    "progress", "prompts", "report_file", "speech", "turn", "workers",
)  # fmt: skip


def test_only_what_draws_imports_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["numpy"]
    assert {f"kakeya.bench.{name}" for name in SHARED} <= set(found["measuring"])
    benches = {name.split(".")[2] for name in found["measuring"] if name.count(".") > 2}
    assert benches, "no bench was found"
    for bench in benches:  # `--help` and a wrong flag are answered at once
        assert {f"kakeya.bench.{bench}.command", f"kakeya.bench.{bench}.options"} <= set(found["measuring"])


def test_nothing_of_ours_imports_numpy_itself() -> None:
    sources = [path.read_text() for path in Path(kakeya.bench.__path__[0]).rglob("*.py")]
    assert len(sources) > len(SHARED)
    assert not [source for source in sources if re.search(r"^\s*(import|from) numpy\b", source, re.MULTILINE)]
