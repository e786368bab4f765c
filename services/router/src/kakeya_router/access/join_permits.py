"""Which worker may join which pool with which model: what the join token of the running rpc is good for."""

from contextvars import ContextVar
from dataclasses import dataclass

from kakeya_shared.errors.tree import PermissionDenied


@dataclass(frozen=True, slots=True)
class Permit:
    """One authenticated join token.

    Attributes:
        token_id: as lists show it; empty where no tokens are asked for.
        pool, worker_id, model: the only ones that it admits; empty: any.
    """

    token_id: str = ""
    pool: str = ""
    worker_id: str = ""
    model: str = ""


ANY_WORKER = Permit()
"""Of a router that asks for no tokens."""

_current: ContextVar[Permit] = ContextVar("permit", default=ANY_WORKER)


def enter(permit: Permit) -> None:
    """Makes it the permit for the rest of the running task."""
    _current.set(permit)


def current() -> Permit:
    """The running rpc's."""
    return _current.get()


def check(pool: str, worker_id: str, model: str | None = None) -> None:
    """Raises PermissionDenied where the rpc's token is not for this pool, this worker or, if it is told, this model."""
    permit = _current.get()
    asked = (("pool", permit.pool, pool), ("worker", permit.worker_id, worker_id), ("model", permit.model, model))
    for what, only, named in asked:
        if named is not None and only not in ("", named):
            raise PermissionDenied(f"this join token is for another {what}")
