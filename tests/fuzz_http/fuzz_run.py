"""One run: every case is sent and its answer judged; then a look at what is left."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests
import schemathesis
from schemathesis import Case, Response

from tests.fuzz.process_watch import ProcessWatch
from tests.fuzz_http.answer_checks import POSITIVE, AnswerChecks, described, is_stream, mode_of
from tests.fuzz_http.cases import send_all
from tests.fuzz_http.event_stream import errors_in
from tests.fuzz_http.report import Report
from tests.fuzz_http.tally import Tally
from tests.fuzz_http.taming import Manner, bounded, tamed
from tests.integration.leftovers import Pool, leftovers
from tests.integration.processes import Runtime

_CALL_SECONDS = 60.0
_MAX_EVENTS = 100_000  # streams are read to their end, and not to the 100th event
_LEFTOVER_SECONDS = 10.0
_REFUSED_TOO = "413"  # of what is not allowed; schemathesis does not expect it by itself


@dataclass(frozen=True)
class Plan:
    num_cases: int
    seed: int


class FuzzRun:
    """Args:
    made: a runtime with a shim, not used by anybody else.
    on_progress: told the number of cases sent so far.
    """

    def __init__(self, made: Runtime, plan: Plan, on_progress: Callable[[int], None]) -> None:
        self._made = made
        self._plan = plan
        self._on_progress = on_progress
        self._base_url = f"http://{made.shims[0].address}"
        self._tally = Tally()
        self._watch = ProcessWatch(made, frozenset())
        worker = made.list_workers()[0]
        self._vocab_size, self._pool = worker.vocab_size, Pool(worker.pool)

    def run(self) -> Report:
        started = time.monotonic()
        document = requests.get(f"{self._base_url}/openapi.json", timeout=_CALL_SECONDS).json()
        self._checks = AnswerChecks(document, self._vocab_size)
        schema: Any = schemathesis.openapi.from_dict(document)
        schema.config.update(base_url=self._base_url)
        schema.config.max_stream_events = _MAX_EVENTS
        schema.config.checks.negative_data_rejection.expected_statuses.append(_REFUSED_TOO)
        with requests.Session() as self._session:
            send_all(schema, self._plan.num_cases, self._plan.seed, self._send)
        if self._tally.num_cases < self._plan.num_cases:
            self._tally.violate(f"only {self._tally.num_cases} of {self._plan.num_cases} cases were found")
        self._leave_nothing()
        return Report(self._plan.seed, time.monotonic() - started, self._tally)

    def _send(self, case: Case, manner: Manner) -> None:
        if isinstance(case.body, dict):
            is_valid = mode_of(case) == POSITIVE
            case.body = tamed(case.body, manner, self._vocab_size) if is_valid else bounded(case.body)
        try:
            response = case.call(session=self._session, timeout=_CALL_SECONDS)
        except requests.RequestException as error:
            self._tally.count(case.operation.label, "no answer", mode_of(case))
            self._tally.violate("no answer", f"{case!r}: {error!r}")
            return
        self._tally.count(case.operation.label, _got(case, response), mode_of(case))
        for fault in self._checks.faults(case, response):
            self._tally.violate(fault, described(case, response))
        self._on_progress(self._tally.num_cases)

    def _leave_nothing(self) -> None:
        deadline = time.monotonic() + _LEFTOVER_SECONDS
        while (found := leftovers(self._made, self._pool)) and time.monotonic() < deadline:
            time.sleep(0.2)
        for leftover in found:
            self._tally.violate(f"left over: {leftover}")
        for path in ("/healthz", "/readyz"):
            status = requests.get(f"{self._base_url}{path}", timeout=_CALL_SECONDS).status_code
            if status != 200:
                self._tally.violate(f"at the end {path} says {status}")
        for problem in self._watch.problems():
            self._tally.violate(problem)


def _got(case: Case, response: Response) -> str:
    if case.method.lower() != case.operation.method.lower():
        return f"{response.status_code} other method"
    if not is_stream(response):
        return str(response.status_code)
    return "200 stream, failed" if errors_in((response.content or b"").decode()) else "200 stream"
