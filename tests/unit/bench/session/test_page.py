"""The page of `kakeya bench session`, its pictures, and what is printed of it."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kakeya_bench.conversation.turn import Turn
from kakeya_bench.session import page
from tests.unit.bench.report import golden
from tests.unit.bench.session.runs import FACTS, but, failed, report, run

GOLDEN = Path(__file__).parent / "golden" / "report.html"
PICTURES = ["latency", "memory", "prefill"]
UNKNOWN = replace(FACTS, model="漢 $x$", bytes_per_token=None, why_not="no config.json", worker={})


def document(turns: list[Turn], *flags: str, **known: Any) -> dict[str, Any]:
    """As it stands in a file that was written then."""
    found = report(turns, *flags, **known).document() | {"written_at": "2026-01-01T00:10:00+00:00"}
    read: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
    return read


def test_the_page_is_as_it_is_meant_to_be() -> None:
    """Two sessions, of which one failed once. WRITE_GOLDEN=1 writes the page anew."""
    turns = [*run(130), *but(run(130, session=1, worker="<two>"), 60, error="WorkerLost: <gone>")]
    made = page.files(document(turns, "--sessions", "2", "--exact", state="complete", next_tokens=([1, 2], [1, 3])))
    assert sorted(made) == [*(f"{name}.png" for name in PICTURES), "report.html"]
    assert not golden.differs(made["report.html"], GOLDEN, *(f"{name}.svg" for name in PICTURES))


@pytest.mark.parametrize(
    "turns",
    [
        [],
        run(1, wall_seconds=0.0, time_to_first_token_seconds=0.0),
        run(5_000),
        [
            *but(run(130, capacity=240), 20, wall_seconds=60.0, num_new_tokens=0),
            *(turn for number in range(1, 15) for turn in run(9, session=number, worker=f"漢-{number}")),
            *run(3, session=15, time_to_first_token_seconds=None, worker_rss_bytes=None),
            *(failed(index, session=16) for index in range(1, 11)),
        ],
    ],
    ids=["no turn", "one turn", "5,000 turns", "all kinds of turns"],
)
def test_every_run_is_drawn(turns: list[Turn]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        files = page.files(document(turns, facts=FACTS if len(turns) > 1 else UNKNOWN))
    assert all(files[f"{name}.png"].startswith(b"\x89PNG") for name in PICTURES)
    assert files["report.html"].count(b'src="data:image/svg+xml;base64,') == 3
    assert len(files["report.html"]) < 1_000_000, "also of a run of days"


@pytest.mark.parametrize(
    ("drift", "says"),
    [
        (0.0021, "took 2.1 ms more than that of the first tenth."),
        (-1.5, "took 1,500.0 ms less than that of the first tenth."),
        (None, "without the warm-up: the first 5 turns of each session."),
    ],
)
def test_the_summary_says_whether_turns_became_slower(drift: float | None, says: str) -> None:
    made = document(run(2))
    title, sections = page.summary(made | {"agg": made["agg"] | {"latency_drift_p50_s": drift}})
    assert title == "kakeya bench session: counter"
    about = [block for section in sections for block in section.blocks if isinstance(block, str)]
    assert about[0].startswith(
        "counter with 4 sinks and a window of 64 tokens. 2 turns in 1 session, 0 of them failed."
    )
    assert about[1].endswith(says)
