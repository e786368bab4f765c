"""The demo checkpoint, by way of the worker's command that makes it."""

import asyncio
import subprocess
import sys
from pathlib import Path

from kakeya_local.errors import StackError
from kakeya_local.plan import require_parts


async def demo_checkpoint() -> Path:
    """The directory of the demo checkpoint, made now if this machine has none. Raises StackError."""
    require_parts("demo-checkpoint")
    command = (sys.executable, "-m", "kakeya", "demo-checkpoint")
    made = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    if made.returncode:
        raise StackError(f"no demo checkpoint: {made.stderr.strip().splitlines()[-1]}")
    return Path(made.stdout.strip())
