"""K and V of each type in exact mode: how they are stored, and attention over them."""

from typing import Protocol

from torch import Tensor

from kakeya_worker.torch_backend.exact.arithmetic import round_to
from kakeya_worker.torch_backend.exact.attention import over_floats, over_int8
from kakeya_worker.torch_backend.exact.attention.int8_kv import as_slots, spread
from kakeya_worker.torch_backend.exact.attention.row_view import ExactRowView
from kakeya_worker.torch_backend.numerics import INT8, KvType, RowQueries


class ExactKv(Protocol):
    """One type; see `Numerics` for what the methods take."""

    def stored_keys(self, x: Tensor, /) -> Tensor: ...

    def stored_values(self, x: Tensor, /) -> Tensor: ...

    def attend(self, queries: RowQueries, keys: Tensor, values: Tensor, view: ExactRowView, /) -> Tensor: ...


class FloatKv:
    """Numbers that are rounded one by one."""

    attend = staticmethod(over_floats.attend)

    def __init__(self, kv_type: KvType) -> None:
        self._dtype = kv_type.dtype

    def rounded(self, x: Tensor) -> Tensor:
        return round_to(x, self._dtype)

    def stored_keys(self, x: Tensor) -> Tensor:
        return self.rounded(x)

    def stored_values(self, x: Tensor) -> Tensor:
        return self.rounded(x)


class IntegerKv:
    """int8, with a scale for each head."""

    attend = staticmethod(over_int8.attend)
    stored_values = staticmethod(as_slots)

    def stored_keys(self, x: Tensor) -> Tensor:
        """They are turned as queries are, which leaves their products what they were."""
        return as_slots(spread(x))


def exact_kv(kv_type: KvType) -> ExactKv:
    return IntegerKv() if kv_type is INT8 else FloatKv(kv_type)
