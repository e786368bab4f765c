"""Which models are served: what clients may ask for before they open a session."""

from collections.abc import Sequence

from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.fleet import Fleet
from kakeya_shared.contract.features import TURN_SEARCH
from kakeya_stubs.v1 import runtime_pb2 as api


class Models:
    """Reads them off the workers that have joined.

    Args:
        default_model: for sessions that name none; empty: the only one that is served.
    """

    def __init__(self, fleet: Fleet, default_model: str) -> None:
        self._fleet = fleet
        self._default_model = default_model

    async def served(self) -> list[api.Model]:
        """One for each name, by name. Raises StoreUnavailable."""
        await self._fleet.look()
        workers = self._fleet.workers()
        names = sorted({worker.model for worker in workers})
        default = self._default_model or (names[0] if len(names) == 1 else "")
        return [_model(name, [w for w in workers if w.model == name], is_default=name == default) for name in names]


def _model(name: str, workers: Sequence[WorkerRecord], *, is_default: bool) -> api.Model:
    digests = {worker.tokenizer_digest for worker in workers}
    largest = max(workers, key=lambda worker: worker.sink + worker.window)
    return api.Model(
        name=name,
        lane_token_count=largest.sink + largest.window,
        sink=largest.sink,
        window=largest.window,
        kv_bytes_per_token=largest.kv_bytes_per_token,
        # Of workers that should agree and do not, the ids that all of them know: CreateSession goes by it, too.
        vocab_size=min(worker.vocab_size for worker in workers),
        is_default=is_default,
        # A session may come to any of them: a client's tokenizer must be that of all.
        tokenizer_digest=digests.pop() if len(digests) == 1 else "",
        features=[TURN_SEARCH],
    )
