"""A session on an engine in this process; whatever it generates is acknowledged at once."""

from collections.abc import Callable

from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.sampling.sampling import Sampling, TokenDetail
from kakeya_worker.engine.seams.retention import SessionOptions

ENDLESS = 10**6  # tokens
_TIMEOUT_SECONDS = 3600.0
_EPOCH = 1


class EngineSession:
    """It is open until it is closed."""

    def __init__(self, engine: Engine, session_id: str, tenant: str = "") -> None:
        self.engine = engine
        self._session_id = session_id
        self._length = 0
        engine.open(session_id, _EPOCH, SessionOptions(), tenant).result(_TIMEOUT_SECONDS)

    def append(self, token_ids: tuple[int, ...]) -> Append:
        """Begins to."""
        append = Append(self._session_id, _EPOCH, self._length, token_ids)
        self.engine.submit(append)
        return append

    def prefill(self, token_ids: tuple[int, ...]) -> float:
        """Appends and waits; seconds that it took."""
        appended = self.append(token_ids).future.result(_TIMEOUT_SECONDS)
        self._length = appended.lane.history_length
        return appended.prefill_seconds

    def generate(self, on_token: Callable[[], None] = lambda: None) -> Generate:
        """Begins to, without an end."""

        def read(token_id: int, detail: TokenDetail | None) -> None:
            on_token()
            self.engine.acknowledge(generate, generate.num_generated)

        generate = Generate(
            self._session_id,
            _EPOCH,
            self._length,
            max_tokens=ENDLESS,
            eos_token_ids=frozenset(),
            sampling=Sampling(),
            on_token=read,
        )
        self.engine.submit(generate)
        return generate

    def stop(self) -> None:
        """What it generates."""
        stopped = self.engine.stop_operation(self._session_id, _EPOCH).result(_TIMEOUT_SECONDS)
        self._length = stopped.state.history_length

    def close(self) -> None:
        self.engine.close(self._session_id, _EPOCH).result(_TIMEOUT_SECONDS)
