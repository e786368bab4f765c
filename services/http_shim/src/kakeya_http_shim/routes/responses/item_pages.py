"""Lists of items, a page at a time."""

from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request

from kakeya_http_shim.problems import ApiError

_DEFAULT_ITEMS, MAX_ITEMS = 20, 100
_ORDERS: Final = ("asc", "desc")


class ItemList(BaseModel):
    """Items of a conversation, a page of them."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None = Field(description="null of an empty page")
    last_id: str | None
    has_more: bool

    @classmethod
    def of(cls, items: Sequence[dict[str, Any]], *, has_more: bool = False) -> "ItemList":
        first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
        return cls(data=[*items], first_id=first, last_id=last, has_more=has_more)


class Page:
    """The page that a request asks for. Raises ApiError: it asks for none."""

    def __init__(self, request: Request) -> None:
        self._limit = _limit(request)
        self._order = _order(request)
        self._after = request.query_params.get("after")

    def of(self, items: Sequence[dict[str, Any]]) -> ItemList:
        """Raises ApiError: there is no item that it is to come after."""
        found = [*items] if self._order == "asc" else [*reversed(items)]
        if self._after is not None:
            ids = [item["id"] for item in found]
            if self._after not in ids:
                raise _invalid("after", "names no item of these")
            found = found[ids.index(self._after) + 1 :]
        return ItemList.of(found[: self._limit], has_more=len(found) > self._limit)


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(_DEFAULT_ITEMS))
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= MAX_ITEMS):
        raise _invalid("limit", f"must be 1 to {MAX_ITEMS}")
    return int(text)


def _order(request: Request) -> str:
    order = request.query_params.get("order", "desc")
    if order not in _ORDERS:
        raise _invalid("order", f"must be one of {', '.join(_ORDERS)}")
    return order


def _invalid(name: str, why: str) -> ApiError:
    return ApiError(400, f"{name}: {why}", param=name, code="invalid_value")
