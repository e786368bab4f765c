"""Floors: figures that have to be reached, for gates."""

import argparse
import math
from dataclasses import dataclass
from typing import Final, Literal

FLOORS: Final[dict[str, Literal["minimum", "maximum"]]] = {
    "recall_inside": "minimum",
    "recall_pinned": "minimum",
    "multi_turn_recall": "minimum",
    "int8_recall_loss": "maximum",
    "int8_perplexity_loss": "maximum",
}
"""Shares from 0 to 1; a loss is relative, to float32."""

Verdict = Literal["met", "not met", "not measured"]
EXIT_NOT_MET: Final = 1
EXIT_NOT_MEASURED: Final = 2


@dataclass(frozen=True)
class Floor:
    """One of FLOORS and its bound."""

    name: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> "Floor":
        """NAME=VALUE. Raises argparse.ArgumentTypeError."""
        name, _, value = text.partition("=")
        if name not in FLOORS:
            raise argparse.ArgumentTypeError(f"no floor is named {name!r}; there are {', '.join(FLOORS)}")
        try:
            bound = float(value)
        except ValueError:
            bound = math.nan
        if not 0 <= bound <= 1:
            raise argparse.ArgumentTypeError(f"{text!r}: a floor is a number from 0 to 1")
        return cls(name, bound)

    @property
    def kind(self) -> Literal["minimum", "maximum"]:
        return FLOORS[self.name]

    def judge(self, figure: float | None) -> "JudgedFloor":
        if figure is None or math.isnan(figure):
            return JudgedFloor(self.name, self.kind, self.bound, None, "not measured")
        is_met = figure >= self.bound if self.kind == "minimum" else figure <= self.bound
        return JudgedFloor(self.name, self.kind, self.bound, figure, "met" if is_met else "not met")


@dataclass(frozen=True)
class JudgedFloor:
    """A floor and the figure that it was judged by."""

    name: str
    kind: Literal["minimum", "maximum"]
    bound: float
    figure: float | None
    verdict: Verdict

    def __str__(self) -> str:
        relation = "at least" if self.kind == "minimum" else "at most"
        figure = "-" if self.figure is None else f"{self.figure:.4f}"
        return f"{self.name} = {figure}, {relation} {self.bound:g}: {self.verdict}"


def exit_status(judged: list[JudgedFloor]) -> int:
    """That of a floor that is not met goes before that of one that cannot be judged."""
    verdicts = {floor.verdict for floor in judged}
    if "not met" in verdicts:
        return EXIT_NOT_MET
    return EXIT_NOT_MEASURED if "not measured" in verdicts else 0
