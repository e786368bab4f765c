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


def check(pool: str, worker_id: str) -> None:
    """Raises PermissionDenied where the rpc's token is not for this pool or this worker."""
    permit = _current.get()
    if permit.pool not in ("", pool):
        raise PermissionDenied("this join token is for another pool")
    if permit.worker_id not in ("", worker_id):
        raise PermissionDenied("this join token is for another worker")


def check_model(model: str) -> None:
    """Raises PermissionDenied where the rpc's token is not for this model."""
    if _current.get().model not in ("", model):
        raise PermissionDenied("this join token is for another model")
