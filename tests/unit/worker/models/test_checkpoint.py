"""Checkpoints in directories."""

import subprocess
import sys
from pathlib import Path


def test_a_local_model_needs_no_client_of_the_hub(tmp_path: Path) -> None:
    """It takes a third of a second to import, and each start of a worker would pay that."""
    program = (
        "import sys; from kakeya_worker.models import checkpoint; checkpoint.locate(sys.argv[1]); "
        "sys.exit(sorted(name for name in sys.modules if name.startswith('huggingface_hub')) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
