"""Every case is sent and its answer judged; then a look at what is left."""

import time
from pathlib import Path
from typing import Any, ClassVar

import requests
import schemathesis
from schemathesis import Case, Response

from kakeya_shared.settings.service import setting
from tests.integration.open_http import open_http
from tests.integration.processes import Runtime
from tests.soak.fuzz_http.answer_checks import (
    DEFAULT_TOKENS,
    POSITIVE,
    WINDOW,
    AnswerChecks,
    described,
    mode_of,
)
from tests.soak.fuzz_http.cases import MAX_CHOICES, Manner, bounded, readable, send_all, tamed
from tests.soak.fuzz_http.stream_checks import errors_in, is_stream
from tests.soak.progress import Progress
from tests.soak.proof import SeededProof
from tests.soak.report import Report
from tests.soak.run import Run

_SHIM_FLAGS = (
    *(f"--default-max-tokens={DEFAULT_TOKENS}", f"--max-choices={MAX_CHOICES}"),
    *("--session-ttl-seconds=5", "--session-close-after-seconds=3"),
)
_CALL_SECONDS = 60.0
_MAX_EVENTS = 100_000  # streams are read to their end, and not to the 100th event
_LEFTOVER_SECONDS = 10.0
_REFUSED_TOO = "413"  # of what is not allowed; schemathesis does not expect it by itself


class FuzzHttp(SeededProof):
    """Requests that the OpenAPI document allows and forbids, on a shim in front of a real stack. schemathesis reads
    GET /openapi.json and makes the cases: those at the borders of every schema and every method that is not served,
    then drawn ones. Exits with 1 when a status, a content type, a body or an event was not as documented, when anything
    failed unforeseen, when what is forbidden was accepted or what is allowed refused (but for what the schema cannot
    say: which tokens there are), or when anything was left at the end.
    """

    SEED: ClassVar = "FUZZ_HTTP_SEED"
    model_config = SeededProof.named("fuzz-http")

    cases: int = setting(2_400, "how many cases", unit="cases", reason="six minutes; all borders are among them", ge=1)

    def prove(self, directory: Path, progress: Progress) -> Report:
        """It asks for no keys."""
        with open_http(directory, *_SHIM_FLAGS, lanes=2 * MAX_CHOICES, window=WINDOW) as made:
            return FuzzHttpRun(made, progress).run(self.cases, self.seed)


class FuzzHttpRun(Run):
    def __init__(self, made: Runtime, progress: Progress) -> None:
        super().__init__(made, progress)
        self._base_url = f"http://{made.shims[0].address}"
        self._vocab_size = made.list_workers()[0].vocab_size

    def run(self, num_cases: int, seed: int) -> Report:
        started = time.monotonic()
        self.begin(num_cases, "cases")
        document = requests.get(f"{self._base_url}/openapi.json", timeout=_CALL_SECONDS).json()
        self._checks = AnswerChecks(document, self._vocab_size)
        schema: Any = schemathesis.openapi.from_dict(readable(document))
        schema.config.update(base_url=self._base_url)
        schema.config.max_stream_events = _MAX_EVENTS
        schema.config.checks.negative_data_rejection.expected_statuses.append(_REFUSED_TOO)
        with requests.Session() as self._session:
            send_all(schema, num_cases, seed, self._send)
        if self.tally.num_counted < num_cases:
            self.tally.violate(f"only {self.tally.num_counted} of {num_cases} cases were found")
        self.leave_nothing(_LEFTOVER_SECONDS)
        for path in ("/healthz", "/readyz"):
            status = requests.get(f"{self._base_url}{path}", timeout=_CALL_SECONDS).status_code
            if status != 200:
                self.tally.violate(f"at the end {path} says {status}")
        self.read_logs()
        return self.report(
            {
                "seed": seed,
                "cases": self.tally.num_counted,
                "seconds": round(time.monotonic() - started, 1),
                "by_kind": dict(self.tally.kinds.most_common()),
                "by_status": self.tally.by_outcome(),
                "by_operation": self.tally.by_what(),
            }
        )

    def _send(self, case: Case, manner: Manner) -> None:
        if isinstance(case.body, dict):
            is_valid = mode_of(case) == POSITIVE
            case.body = tamed(case.body, manner, self._vocab_size, case.path) if is_valid else bounded(case.body)
        try:
            response = case.call(session=self._session, timeout=_CALL_SECONDS)
        except requests.RequestException as error:
            self.tally.count(case.operation.label, "no answer", mode_of(case))
            self.tally.violate(f"no answer: {case!r}: {error!r}", kind="no answer")
            return
        self.tally.count(case.operation.label, _got(case, response), mode_of(case))
        for fault in self._checks.faults(case, response):
            self.tally.violate(f"{fault}: {described(case, response)}", kind=fault)


def _got(case: Case, response: Response) -> str:
    if case.method.lower() != case.operation.method.lower():
        return f"{response.status_code} other method"
    if not is_stream(response):
        return str(response.status_code)
    return "200 stream, failed" if errors_in((response.content or b"").decode()) else "200 stream"
