"""The proposer `none`: nothing is drafted."""

from collections.abc import Sequence

from kakeya_worker.engine.seams.geometry import LaneGeometry


class NoProposer:
    """See `kakeya_worker.engine.seams.proposer.Proposer`."""

    max_tokens = 0
    memory_bytes = 0
    is_immediate = True

    def restart(self, token_ids: Sequence[int]) -> None:
        """Nothing."""

    def extend(self, token_ids: Sequence[int]) -> None:
        """Nothing."""

    def propose(self, token_id: int, num_tokens: int) -> Sequence[int]:
        """Nothing."""
        return ()


def no_proposer(geometry: LaneGeometry, vocab_size: int) -> NoProposer:
    """See `kakeya_worker.engine.seams.proposer.NewProposer`."""
    return NoProposer()
