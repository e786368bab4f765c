"""Which files ask for a Mac: the one table of them."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

PATHS = {
    "services/worker/src/kakeya_worker/mlx_backend/*": "the MLX backend",
    "services/worker/src/kakeya_worker/conformance/*": "the suite that it must pass",
    "services/worker/src/kakeya_worker/engine/*": "what plans its steps",
    "services/worker/src/kakeya_worker/models/*": "what it reads of checkpoints",
    "services/worker/src/kakeya_worker/host/*": "what is asked of the system",
    "services/worker/src/kakeya_worker/sizing.py": "how much memory is taken",
    "services/worker/pyproject.toml": "what the worker needs",
    "services/local/src/kakeya_local/stack/*": "how processes are started and watched",
    "tests/conformance/*": "tests of the suite",
    "tests/unit/worker_mlx/*": "tests of the MLX backend",
    "tests/integration/test_mixed_stack.py": "workers of two backends",
    "tests/random_checkpoint.py": "the checkpoint of these tests",
    "ops/mac/*": "what the Mac's workflow runs",
    "ops/evidence.py": "what it measures with",
    "constraints.txt": "versions of what is installed",
}
"""By pattern, in which * stands for any text, slashes too: why.

`.github/workflows/mac-integration.yml` is not among them: the Mac runs that of the default branch, so a run would say
nothing of a change to it.
"""


def asking(files: Iterable[str]) -> list[str]:
    """Those that ask for a Mac, in their order."""
    return [file for file in files if any(fnmatchcase(file, pattern) for pattern in PATHS)]
