"""A session on an engine in this process; whatever it generates is acknowledged at once."""

from collections.abc import Callable, Collection

from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.lanes.results import GenerateResult
from kakeya_worker.engine.sampling.sampling import Sampling, TokenDetail
from kakeya_worker.engine.seams.retention import SessionOptions

ENDLESS = 10**6  # tokens
GREEDY = Sampling()
_TIMEOUT_SECONDS = 3600.0
_EPOCH = 1


class EngineSession:
    """It is open until it is closed.

    Args:
        speculation: see `SessionOptions`.

    Attributes:
        length: of its history, when the latest call began.
    """

    def __init__(self, engine: Engine, session_id: str, tenant: str = "", *, speculation: str = "") -> None:
        self.engine = engine
        self._session_id = session_id
        self.length = 0
        options = SessionOptions(speculation=speculation)
        engine.open(session_id, _EPOCH, options, tenant).result(_TIMEOUT_SECONDS)

    @property
    def lane(self) -> int:
        """Its number."""
        return self.engine.lanes.occupant(self._session_id).lane.index

    def append(self, token_ids: tuple[int, ...]) -> Append:
        """Begins to."""
        append = Append(self._session_id, _EPOCH, self.length, token_ids)
        self.engine.submit(append)
        return append

    def prefill(self, token_ids: tuple[int, ...]) -> float:
        """Appends and waits; seconds that it took."""
        appended = self.append(token_ids).future.result(_TIMEOUT_SECONDS)
        self.length = appended.lane.history_length
        return appended.prefill_seconds

    def generate(
        self,
        on_token: Callable[[], None] = lambda: None,
        *,
        max_tokens: int = ENDLESS,
        sampling: Sampling = GREEDY,
        eos_token_ids: Collection[int] = (),
    ) -> Generate:
        """Begins to."""

        def read(token_id: int, detail: TokenDetail | None) -> None:
            on_token()
            self.engine.acknowledge(generate, generate.num_generated)

        generate = Generate(
            self._session_id,
            _EPOCH,
            self.length,
            max_tokens=max_tokens,
            eos_token_ids=frozenset(eos_token_ids),
            sampling=sampling,
            on_token=read,
        )
        self.engine.submit(generate)
        return generate

    def finished(self, generate: Generate) -> GenerateResult:
        """Waits for what it generates."""
        result = generate.future.result(_TIMEOUT_SECONDS)
        self.length = result.lane.history_length
        return result

    def stop(self) -> None:
        """What it generates."""
        stopped = self.engine.stop_operation(self._session_id, _EPOCH).result(_TIMEOUT_SECONDS)
        self.length = stopped.state.history_length

    def close(self) -> None:
        self.engine.close(self._session_id, _EPOCH).result(_TIMEOUT_SECONDS)
