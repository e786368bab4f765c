"""A row's keys as tensors."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kakeya_worker.engine.seams.row import Row
from kakeya_worker.torch_backend.exact.attention import key_blocks
from kakeya_worker.torch_backend.exact.attention.key_blocks import KeyBlocks


@dataclass(frozen=True)
class ExactRowView:
    """A row's keys in whole blocks.

    Attributes:
        slots: of each key, 0 where there is none; [keys].
        absent: places in a block that hold none of the row's keys; [places].
        num_sinks: how many of the keys are blocks of sinks.
        visible: [queries, keys].
    """

    slots: Tensor
    absent: Tensor
    num_sinks: int
    visible: Tensor


def view(row: Row) -> ExactRowView:
    return as_view(key_blocks.of(row))


def as_view(blocks: KeyBlocks) -> ExactRowView:
    return ExactRowView(
        slots=torch.from_numpy(blocks.slots),
        absent=torch.from_numpy(np.flatnonzero(~blocks.is_present)),
        num_sinks=blocks.num_sinks,
        visible=torch.from_numpy(blocks.visible),
    )
