"""KV memory is paid once: a full slab costs its bytes and nothing beside."""

import subprocess
import sys
from pathlib import Path

import pytest

from kakeya_bench.rivals.checkpoint import save_random_qwen3

SMALL, LARGE = 64 << 20, 4 << 30


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="anonymous memory is read from Linux's smaps")
@pytest.mark.heavy
def test_a_larger_slab_costs_its_bytes_and_no_more(tmp_path: Path) -> None:
    # Much KV and little compute: 128 KiB a token, so that 4 GiB fill in seconds.
    checkpoint = save_random_qwen3(
        tmp_path,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=32,
        num_key_value_heads=32,
        head_dim=512,
    )
    small, large = (_anonymous_bytes(checkpoint, slab_bytes) for slab_bytes in (SMALL, LARGE))
    # Whole lanes are a little less than asked for, so the difference is compared with what was asked.
    assert 0.95 * (LARGE - SMALL) <= large - small <= 1.05 * (LARGE - SMALL)


def _anonymous_bytes(checkpoint: Path, slab_bytes: int) -> int:
    command = [sys.executable, "-m", "tests.integration.fill_slab", str(checkpoint), str(slab_bytes)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(printed.splitlines()[-1])  # after what the worker logs
