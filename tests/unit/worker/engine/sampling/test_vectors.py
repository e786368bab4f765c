"""The committed test vectors: the worker gives their answers, and they tell every wrong order of the steps."""

import json
from dataclasses import replace
from importlib import resources
from itertools import permutations
from math import isclose
from typing import Any

import numpy as np
import pytest

from kakeya_worker.engine.sampling import elementary, sampling
from kakeya_worker.engine.sampling.gumbel import Survivors
from kakeya_worker.engine.sampling.philox import philox4x32, uniforms
from kakeya_worker.engine.sampling.sampling import Sampling, choose, token_detail


def _vectors(name: str) -> Any:
    return json.loads((resources.files("kakeya_worker") / "conformance" / "vectors" / name).read_text())


PHILOX, ELEMENTARY, CASES = _vectors("philox.json"), _vectors("elementary.json"), _vectors("sampling.json")
SMALL_CASES = [case for case in CASES if isinstance(case["logits"], list)]


def _logits(asked: Any) -> np.ndarray:
    if isinstance(asked, list):
        return np.array([float(logit) for logit in asked], dtype=np.float32)
    ids = np.arange(asked["num"], dtype=np.uint64)
    zeros = np.zeros_like(ids)
    words = philox4x32((ids, zeros, zeros, zeros), (asked["key"], 0))[0] >> np.uint64(8)
    logits = asked["scale"] * (words.astype(np.float64) / 2**23 - 1)
    for token_id, logit in asked["changed"].items():
        logits[int(token_id)] = float(logit)
    return logits.astype(np.float32)


def _by_id(values: dict[str, Any]) -> dict[int, Any]:
    return {int(token_id): value for token_id, value in values.items()}


def _sampling(asked: dict[str, Any]) -> Sampling:
    logit_bias = tuple(_by_id(asked["logit_bias"]).items())
    return Sampling(**{**asked, "seed": int(asked["seed"]), "logit_bias": logit_bias})


def _is_passed(case: dict[str, Any], choose: Any = choose) -> bool:
    logits, asked, counts = _logits(case["logits"]), _sampling(case["sampling"]), _by_id(case["counts"])
    choices = enumerate(case["token_ids"], start=case["first_history_index"])
    return all(choose(logits, asked, index, counts, case["masked"]) == token_id for index, token_id in choices)


@pytest.mark.parametrize("vector", PHILOX["philox4x32_10"])
def test_philox(vector: dict[str, Any]) -> None:
    c0, c1, c2, c3 = (np.array([word], dtype=np.uint64) for word in vector["counter"])
    result = philox4x32((c0, c1, c2, c3), (vector["key"][0], vector["key"][1]))
    assert [int(word[0]) for word in result] == vector["result"]


@pytest.mark.parametrize("vector", PHILOX["uniform"])
def test_uniforms(vector: dict[str, Any]) -> None:
    (u,) = uniforms(int(vector["seed"]), vector["history_index"], np.array([vector["token_id"]]))
    assert float(u).hex() == vector["u"]


@pytest.mark.parametrize("name", ["exp", "log"])
def test_elementary_functions_give_these_bits(name: str) -> None:
    x, y = (np.array([float.fromhex(vector[key]) for vector in ELEMENTARY[name]]) for key in "xy")
    assert getattr(elementary, name)(x).tobytes() == y.tobytes()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_choices(case: dict[str, Any]) -> None:
    assert _is_passed(case)


@pytest.mark.parametrize("case", [c for c in CASES if "logprob" in c], ids=lambda case: case["name"])
def test_logprobs(case: dict[str, Any]) -> None:
    detail = token_detail(_logits(case["logits"]), case["token_ids"][0], case["num_top_logprobs"])
    assert isclose(detail.logprob, case["logprob"], rel_tol=1e-12, abs_tol=1e-12)
    assert [token_id for token_id, _ in detail.top] == [token_id for token_id, _ in case["top_logprobs"]]
    for (_, logprob), (_, expected) in zip(detail.top, case["top_logprobs"], strict=True):
        assert isclose(logprob, expected, rel_tol=1e-12, abs_tol=1e-12)


def _are_passed(cases: list[dict[str, Any]]) -> bool:
    """Puts the case that fails first: what tells one mistake soon tells the next."""
    for place, case in enumerate(cases):
        if not _is_passed(case):
            cases.insert(0, cases.pop(place))
            return False
    return True


def test_every_other_order_of_the_steps_fails_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = list(SMALL_CASES)
    unnoticed = []
    for steps in permutations(sampling.STEPS):
        with monkeypatch.context() as patch:
            patch.setattr(sampling, "STEPS", steps)
            if _are_passed(cases):
                unnoticed.append(steps)
    assert unnoticed == [sampling.STEPS]


def _masked_by_a_bias(logits: np.ndarray, asked: Sampling, index: int, counts: Any, masked: list[int]) -> int:
    against = tuple((token_id, -100.0) for token_id in masked)
    return choose(logits, replace(asked, logit_bias=asked.logit_bias + against), index, counts)


def _masked_after_all_steps(logits: np.ndarray, asked: Sampling, index: int, counts: Any, masked: list[int]) -> int:
    def mask(survivors: Survivors, *_: object) -> None:
        survivors.all_scores[masked] = -np.inf

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "STEPS", (*sampling.STEPS, mask))
        return choose(logits, asked, index, counts)


def _not_masked(logits: np.ndarray, asked: Sampling, index: int, counts: Any, masked: list[int]) -> int:
    return choose(logits, asked, index, counts)


@pytest.mark.parametrize("otherwise", [_masked_by_a_bias, _masked_after_all_steps, _not_masked])
def test_ids_that_are_masked_in_another_way_fail_a_case(otherwise: Any) -> None:
    assert all(_is_passed(case) for case in SMALL_CASES)
    assert not all(_is_passed(case, otherwise) for case in SMALL_CASES)


@pytest.mark.parametrize("left_out", sampling.STEPS, ids=lambda step: step.__name__)
def test_a_step_that_is_left_out_fails_a_case(left_out: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "STEPS", [step for step in sampling.STEPS if step is not left_out])
    assert not _are_passed(list(SMALL_CASES))
