"""Chat templates written in the ways of well-known model families: what each asks of Jinja and of its messages."""

from pathlib import Path

HERE = Path(__file__).parent
ONES = {path.stem: path.read_text("utf-8") for path in sorted(HERE.glob("*.jinja"))}
NAMED = {path.stem: path.read_text("utf-8") for path in sorted((HERE / "command_r").glob("*.jinja"))}

CONTROL = (HERE / "control_tokens.txt").read_text("utf-8").split()
"""What they write, as tokens of their tokenizers; those that do not end in `|>` are not special there."""
