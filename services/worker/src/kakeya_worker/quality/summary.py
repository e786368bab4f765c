"""The result as a table on standard output."""

from rich.console import Console
from rich.table import Table

from kakeya_worker.quality.conclusions import conclusions
from kakeya_worker.quality.result import Result

_PIPE_COLUMNS = 1000  # a pipe has no width of its own: whoever reads it wants lines whole


def print_summary(result: Result) -> None:
    """One line a configuration, then what follows from them, then the floors."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_COLUMNS)
    console.print(_table(result))
    console.print()
    for line in conclusions(result):
        console.print(line, markup=False)
    for floor in result.judged:
        console.print(f"floor {floor}", markup=False, style=None if floor.verdict == "met" else "bold red")


def _table(result: Result) -> Table:
    table = Table(
        "sessions", "S+W", "recall in sight", "worst", "falls at", "multi-turn in sight", "perplexity inside",
        "past the wrap",
        box=None, pad_edge=False,
    )  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    recalls = {each.configuration: each for each in result.recall if each.told_by == "user"}
    turns = {each.configuration: each for each in result.multi_turn}
    for each in result.perplexity:
        recall, turn = recalls.get(each.configuration), turns.get(each.configuration)
        table.add_row(
            str(each.configuration),
            f"{each.configuration.capacity:,}",
            _percent(recall.inside.value if recall else None),
            _percent(recall.lowest_inside if recall else None),
            "-" if recall is None or recall.falls_at is None else f"{recall.falls_at:,}",
            _percent(turn.in_sight.value if turn else None),
            _number(each.buckets[0].value),
            _number(each.past_the_wrap.value),
        )
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
