"""What is to be known about the figures of a comparison, in sentences."""

from collections.abc import Iterator, Mapping
from typing import Any


def notes(document: Mapping[str, Any]) -> list[str]:
    """What the figures are, and what happened to the players."""
    return [
        f"Time to first token (TTFT) by the client's clock. At a mark: the median of up to "
        f"{document['turns_to_a_mark']} turns, of which the mark is the last; of players of marks alone, that turn's.",
        *(f"{player['name']}: {note}." for player in document["players"] for note in _notes(player)),
    ]


def _notes(player: Mapping[str, Any]) -> Iterator[str]:
    if player["num_errors"]:
        yield f"{_turns(player['num_errors'])} failed; the first was {player['first_error']}"
    if player["left_out_after_turn"] is not None:
        yield f"left out after turn {player['left_out_after_turn']}, since turn after turn failed"
    if not player["plays_every_turn"]:
        yield "plays the marks alone, with the runtime's history"
    if player["num_dropping_turns"]:
        yield (
            f"{_turns(player['num_dropping_turns'])} began with fewer of the oldest tokens, since its context holds "
            f"{player['context']:,}"
        )
    if player["num_unknown_answers"]:
        yield (
            f"its answer's ids are not known in {_turns(player['num_unknown_answers'])}: others stand in its history, "
            "and a cache ends there"
        )


def _turns(number: int) -> str:
    return f"{number:,} turn" if number == 1 else f"{number:,} turns"
