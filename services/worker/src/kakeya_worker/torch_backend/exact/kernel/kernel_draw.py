"""The draw of a token in the C++ kernel: the same bits as `gumbel.draw`."""

from dataclasses import dataclass

from kakeya_worker.engine.sampling.gumbel import Survivors
from kakeya_worker.torch_backend.exact.kernel.library import Kernel


@dataclass(frozen=True)
class KernelDraw:
    """Of one kernel; a `gumbel.Draw`."""

    kernel: Kernel

    def __call__(self, survivors: Survivors, seed: int, history_index: int) -> int:
        scores, token_ids = survivors.scores, survivors.token_ids
        ids = None if token_ids is None else token_ids.ctypes.data
        arguments = (scores.ctypes.data, ids, scores.size, seed, history_index)
        place: int = self.kernel.library.kakeya_draw(self.kernel.variant, *arguments)
        return place if token_ids is None else int(token_ids[place])
