"""Floors: figures that have to be reached, each of them a gate."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import Outcome, Verdict, at_least, at_most

FLOORS: Final[dict[str, Literal["minimum", "maximum"]]] = {
    "recall_inside": "minimum",
    "recall_pinned": "minimum",
    "multi_turn_recall": "minimum",
    "int8_recall_loss": "maximum",
    "int8_perplexity_loss": "maximum",
}
"""Shares from 0 to 1; a loss is relative, to float32."""
_WORDS = {Outcome.PASSED: "met", Outcome.FAILED: "not met", Outcome.UNDECIDED: "not measured"}


def parse(text: str) -> tuple[str, float]:
    """NAME=VALUE. Raises ValueError."""
    name, _, value = text.partition("=")
    if name not in FLOORS:
        raise ValueError(f"no floor is named {name!r}; there are {', '.join(FLOORS)}")
    try:
        bound = float(value)
    except ValueError:
        bound = -1.0
    if not 0 <= bound <= 1:
        raise ValueError(f"{text!r}: a floor is a number from 0 to 1")
    return name, bound


def judge(name: str, bound: float, figure: float | None) -> Verdict:
    """Whether the figure reaches the floor; undecided where it was not measured."""
    is_minimum = FLOORS[name] == "minimum"
    if figure is None:
        formula = f"{name} {'>=' if is_minimum else '<='} {bound:g}"
        return Verdict(name, Outcome.UNDECIDED, formula, "not measured")
    return (at_least if is_minimum else at_most)(name, name, Precise(figure), Precise(bound))


def document(text: str, figures: Mapping[str, float | None]) -> dict[str, Any]:
    """A floor as it stands in a report, with the figure that it is judged by."""
    name, bound = parse(text)
    verdict = _WORDS[judge(name, bound, figures[name]).outcome]
    return {"name": name, "kind": FLOORS[name], "bound": bound, "figure": figures[name], "verdict": verdict}


def verdicts(document: Mapping[str, Any]) -> list[Verdict]:
    """Those of a report."""
    return [judge(each["name"], each["bound"], each["figure"]) for each in document["floors"]]
