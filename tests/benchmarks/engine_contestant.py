"""A contestant's process: it obeys commands, one line of JSON each, and answers each with one line.

{"do": "load", ...} -> {"answer": ...}, or {"error": "..."}. Between commands it waits for a line and uses no CPU; at
the end of its input it ends. What libraries print goes to stderr.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from tests.benchmarks.engine_case import Case

Fields = dict[str, Any]


class Contestant(Protocol):
    """An engine that holds one model."""

    @property
    def load(self) -> Callable[..., Fields]:
        """Loads the model and computes the logits after one token, so that nothing is left to be read later.

        Returns `seconds` that this took, imports aside, and what else is to be known of the engine.
        """
        ...

    @property
    def open(self) -> Callable[..., Fields]:
        """Of `window` and `cases`: makes full sessions for the cases of a window, in place of those that are open.

        Returns what is to be known of them.
        """
        ...

    def measure(self, case: Case, num_times: int) -> list[float]:
        """Seconds of each decode step, or of each prefill.

        A decode step that is not timed goes before, for the caches still hold what another contestant worked with.
        """
        ...


def serve(contestant: Contestant) -> None:
    """Until the end of the input."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for line in sys.stdin:
            print(json.dumps(_answer(contestant, json.loads(line))), file=answers, flush=True)


def _answer(contestant: Contestant, command: Fields) -> Fields:
    try:
        match command.pop("do"):
            case "load":
                return {"answer": contestant.load(**command)}
            case "open":
                return {"answer": contestant.open(**command)}
            case "measure":
                return {"answer": contestant.measure(Case.of(command["case"]), command["num_times"])}
            case unknown:
                return {"error": f"{unknown!r} is no command"}
    except Exception:  # whatever it is, the other side tells the user
        return {"error": traceback.format_exc()}
