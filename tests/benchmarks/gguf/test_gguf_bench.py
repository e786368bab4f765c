"""`make bench-models`: what its figures and its verdicts are."""

import numpy as np
import pytest

from kakeya_bench.report.verdict import Outcome
from tests.benchmarks.gguf import losses, models, speeds

GOOD = {
    "int8_kl_over_q8_0": 0.5,
    "q4_kl_over_llama": 0.1,
    **models.LEAST,
    "q4_decode_1_over_int8": 1.5,
    "q4_step_over_floor": 1.3,
}


@pytest.mark.parametrize(
    ("found", "kernel", "broken"),
    [
        ({}, "avx2", []),
        ({}, "avx512vnni", ["q4_decode_1_over_int8"]),  # of which 1.6 is asked there
        ({"q4_kl_over_llama": 0.26}, None, ["q4_kl_over_llama"]),
        ({"q4_prefill_over_llama": 1.09}, None, ["q4_prefill_over_llama"]),
        ({"q4_step_over_floor": 1.41}, None, ["q4_step_over_floor"]),
    ],
)
def test_one_broken_bound_is_enough(found: dict[str, float], kernel: str | None, broken: list[str]) -> None:
    verdicts = models.verdicts({**GOOD, **found}, kernel)
    assert {each.gate for each in verdicts} == set(GOOD)
    assert [each.gate for each in verdicts if each.outcome is Outcome.FAILED] == broken


def test_a_speed_is_higher_where_less_time_is_taken() -> None:
    bursts = {"llama.cpp q4": [[0.2, 0.4, 0.3], [0.6]], "Kakeya q4": [[0.1, 0.1, 0.2], [0.2]]}
    found = speeds.over_llama({case.name: bursts for case in speeds.CASES}, "q4")
    assert found == {f"q4_{name}_over_llama": pytest.approx(3.0) for name in ("decode_1", "decode_8", "prefill")}


def test_losses_are_counted_position_by_position() -> None:
    """Of two chunks: equal at first, then with one token e times as likely."""
    equal, other = np.zeros((2, 3), np.float32), np.asarray([[1.0, 0.0, 0.0]], np.float32)
    found = losses.compared(iter([equal, other]), iter([equal, other * 0]), [0, 1, 2])
    assert found["mean KL"] == pytest.approx((np.log((np.e + 2) / 3) - 1 / 3) / 3)
    assert found["same token"] == 1.0
    assert found["in float32"] == pytest.approx(3.0)
    lost = {losses.OWN: {"mean KL": 1.0}, losses.INT8: {"mean KL": 3.0}}
    lost |= {losses.LLAMA_OWN: {"mean KL": 4.0}, losses.LLAMA_Q8_0: {"mean KL": 6.0}}
    assert losses.ratios(lost) == {"int8_kl_over_q8_0": 0.5, "q4_kl_over_llama": 0.25}
