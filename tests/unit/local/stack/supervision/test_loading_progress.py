"""What a starting stack says of a worker that loads, by the worker's own log."""

import json
from typing import Any

import pytest

from kakeya_local.stack.supervision.loading_progress import progress


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"event": "loading layers", "loaded": 7, "of": 30}, "loading layers: 23 %"),
        (
            {"event": "converting weights", "matrices": 3, "weights": 400, "of_weights": 1000},
            "converting weights: 40 %",
        ),
        ({"event": "reading the weights for their digest", "bytes": 9}, "reading the weights for their digest"),
        ({"event": "loading layers", "loaded": 7, "of": 0}, ""),
        ({"event": "loading layers"}, ""),
        ({"event": "loaded", "of": 30}, ""),
        ([], ""),
    ],
)
def test_the_last_line_counts(said: Any, shown: str) -> None:
    assert progress(["not JSON", json.dumps(said)]) == shown


def test_a_log_that_is_no_json_says_nothing() -> None:
    assert progress([]) == progress(["loading layers"]) == ""


def test_the_events_are_what_workers_say() -> None:
    """The words stand in the worker's sources, which this part does not import."""
    from tests.house.packages import ROOT

    sources = ROOT / "services/worker/src/kakeya_worker"
    assert '"loading layers", loaded=' in (sources / "torch_backend/loading.py").read_text()
    assert '"converting weights"' in (sources / "torch_backend/exact/weight_cache.py").read_text()
    assert '"reading the weights for their digest"' in (sources / "models/model_digest.py").read_text()
