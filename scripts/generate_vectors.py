"""Writes the worker's test vectors: philox.json, elementary.json and sampling.json.

    python scripts/generate_vectors.py services/worker/src/kakeya_worker/conformance/vectors

The values come from the slow implementations beside this script, never from the code that is tested with them.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import elementary_reference
import sampling_reference
from sampling_cases import Case, RandomLogits, cases

# Random123 1.14, tests/kat_vectors: philox4x32 10 (counter, key, result).
PHILOX_KNOWN_ANSWERS = (
    "00000000 00000000 00000000 00000000  00000000 00000000  6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    "ffffffff ffffffff ffffffff ffffffff  ffffffff ffffffff  408f276d 41c83b0e a20bc7c6 6d5451fd",
    "243f6a88 85a308d3 13198a2e 03707344  a4093822 299f31d0  d16cfe09 94fdcceb 5001e420 24126ea1",
)
UNIFORMS = ((0, 0, 0), (1, 0, 0), (1 << 32, 0, 0), (0, 1, 0), (0, 1 << 32, 0), (0, 0, 1), (2**64 - 1, 2**40, 151_935))
NUM_RANDOM_ARGUMENTS = 40


def vectors() -> Mapping[str, str]:
    """The files' texts by name."""
    made = {"philox.json": _philox(), "elementary.json": _elementary(), "sampling.json": [_choices(c) for c in cases()]}
    return {name: _text(content) for name, content in made.items()}


def _text(content: Any) -> str:
    """JSON, an entry a line."""
    if isinstance(content, dict):
        parts = [f"{json.dumps(key)}: [\n{_lines(entries)}\n]" for key, entries in content.items()]
        return "{\n" + ",\n".join(parts) + "\n}\n"
    return f"[\n{_lines(content)}\n]\n"


def _lines(entries: Iterable[Any]) -> str:
    return ",\n".join(json.dumps(entry, allow_nan=False) for entry in entries)


def _philox() -> dict[str, list[Any]]:
    known_answers = []
    for line in PHILOX_KNOWN_ANSWERS:
        words = [int(word, 16) for word in line.split()]
        counter, key, result = words[:4], words[4:6], words[6:]
        if list(sampling_reference.philox4x32(tuple(counter), tuple(key))) != result:
            raise AssertionError(f"the reference differs from Random123: {line}")
        known_answers.append({"counter": counter, "key": key, "result": result})
    uniforms = [
        {"seed": str(at[0]), "history_index": at[1], "token_id": at[2], "u": sampling_reference.uniform(*at).hex()}
        for at in UNIFORMS
    ]
    return {"philox4x32_10": known_answers, "uniform": uniforms}


def _elementary() -> dict[str, list[Any]]:
    exp_arguments = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0**-60, -(2.0**-30), 709.75, -708.0, -740.0, -745.0, -745.2, -40.5]
    exp_arguments += [-(2.0**power) * fraction for power, fraction in _random(1, powers=range(-12, 10))]
    log_arguments = [1.0, 2.0, 0.5, math.e, math.sqrt(2), math.sqrt(0.5), 1 - 2.0**-53, 1 + 2.0**-52]
    log_arguments += [2.0**-53, 5e-324, 1e-310, 2.0**-1022, sys.float_info.max, 36.7368, 151_936.0]
    log_arguments += [2.0**power * fraction for power, fraction in _random(2, powers=range(-60, 60))]
    return {
        "exp": [_value("exp", elementary_reference.exp, x) for x in exp_arguments],
        "log": [_value("log", elementary_reference.log, x) for x in log_arguments],
    }


def _random(key: int, powers: range) -> Iterable[tuple[int, float]]:
    """Exponents within `powers` and fractions within 1 and 2."""
    for number in range(NUM_RANDOM_ARGUMENTS):
        power, *_ = sampling_reference.philox4x32((number, 0, 0, 1), (key, 0))
        yield powers[power % len(powers)], 1.0 + sampling_reference.uniform(key, number, 0)


def _value(name: str, function: Callable[[float], float], x: float) -> dict[str, str]:
    y = function(x)
    if elementary_reference.error_ulps(name, x, y) >= 1.0:
        raise AssertionError(f"{name}({x}) is wrong in more than its last bit")
    return {"x": x.hex(), "y": y.hex()}


def _choices(case: Case) -> dict[str, Any]:
    logits = case.logits.values() if isinstance(case.logits, RandomLogits) else case.logits
    indices = range(case.first_history_index, case.first_history_index + case.num_choices)
    token_ids = [sampling_reference.choose(logits, case.asked, index, case.counts, case.masked) for index in indices]
    asked = vars(case.asked) | {"seed": str(case.asked.seed), "logit_bias": _by_id(case.asked.logit_bias)}
    entry = {
        "name": case.name,
        "logits": _logits(case.logits),
        "sampling": asked,
        "counts": _by_id(case.counts),
        "masked": list(case.masked),
        "first_history_index": case.first_history_index,
        "token_ids": token_ids,
    }
    if case.num_top_logprobs is not None:
        logprobs = sampling_reference.logprobs(logits)
        top = list(logprobs.items())[: case.num_top_logprobs]
        entry |= {"logprob": logprobs[token_ids[0]], "num_top_logprobs": case.num_top_logprobs, "top_logprobs": top}
    return entry


def _logits(logits: tuple[float, ...] | RandomLogits) -> Any:
    if isinstance(logits, RandomLogits):
        return vars(logits) | {"changed": {str(i): _number(logit) for i, logit in logits.changed.items()}}
    return [_number(logit) for logit in logits]


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "-inf"


def _by_id(values: Mapping[int, float]) -> dict[str, float]:
    return {str(token_id): value for token_id, value in values.items()}


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    for file_name, text in vectors().items():
        (directory / file_name).write_text(text)
