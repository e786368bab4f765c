"""What an operator's request must be like, and what it asks for in the store's words."""

import re
from collections.abc import Iterable

from kakeya_router.contract import validation, worker_claims
from kakeya_router.contract.same_names import same_named
from kakeya_router.store.access import credentials
from kakeya_router.store.access.credential_records import Key, Token
from kakeya_router.store.access.credentials import Minted
from kakeya_router.store.access.rights import Quota, Scope
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_shared.contract import labels
from kakeya_shared.errors.tree import CredentialNotFound
from kakeya_stubs.admin.v1 import admin_pb2 as pb

MAX_LABEL_BYTES = 256
WATCH_SECONDS, MIN_WATCH_SECONDS, MAX_WATCH_SECONDS = 0.5, 0.1, 60.0
"""Between two responses of Watch."""
# What never expires says so by leaving it unset.
MAX_EXPIRY_SECONDS = 100 * 365 * 86_400

_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_TEXTS = {"worker_id": worker_claims.MAX_WORKER_ID_BYTES, "model": labels.MAX_MODEL_BYTES, "label": MAX_LABEL_BYTES}
_SCOPES = {pb.SCOPE_SESSIONS: Scope.SESSIONS, pb.SCOPE_ADMIN: Scope.ADMIN}


def check(
    request: pb.CreateKeyRequest
    | pb.CreateTokenRequest
    | pb.DrainWorkerRequest
    | pb.ListKeysRequest
    | pb.ListSessionsRequest,
) -> None:
    """Raises InvalidField: a name, label or scope in it is none; those that are left out are not asked for."""
    given = {field.name: value for field, value in request.ListFields()}
    if "tenant" in given:
        check_tenant(given["tenant"])
    if "pool" in given:
        worker_claims.check_pool(given["pool"])
    validation.check_texts(request, {field: most for field, most in _TEXTS.items() if field in given})
    if not set(given.get("scopes", ())) <= _SCOPES.keys():
        raise validation.invalid("scopes", "there is no such scope")


def interval_seconds(request: pb.WatchRequest) -> float:
    """Least time between two responses; raises InvalidField."""
    seconds = request.interval_seconds or WATCH_SECONDS
    if not MIN_WATCH_SECONDS <= seconds <= MAX_WATCH_SECONDS:
        most = f"must be at least {MIN_WATCH_SECONDS} and at most {MAX_WATCH_SECONDS:g}, or 0"
        raise validation.invalid("interval_seconds", most)
    return seconds


def check_tenant(tenant: str) -> None:
    """Raises InvalidField."""
    if not _TENANT.fullmatch(tenant):
        raise validation.invalid("tenant", f"must match {_TENANT.pattern}")


def named_worker(request: pb.DrainWorkerRequest, workers: Iterable[WorkerRecord]) -> WorkerRecord:
    """The one that is meant; raises InvalidField: there is none, or several."""
    of_name = [worker for worker in workers if worker.worker_id == request.worker_id]
    found = [worker for worker in of_name if request.pool in ("", worker.pool)]
    if not found:
        raise validation.invalid("worker_id", "no worker of this name is registered")
    if len(found) > 1:
        pools = ", ".join(sorted(worker.pool for worker in found))
        raise validation.invalid("pool", f"several pools have a worker of this name: {pools}")
    return found[0]


def check_credential_id(credential_id: str) -> None:
    """Raises CredentialNotFound."""
    if not credentials.is_id(credential_id):
        raise credential_not_found()


def credential_not_found() -> CredentialNotFound:
    return CredentialNotFound("nothing has this id, or not any more")


def key(request: pb.CreateKeyRequest, minted: Minted) -> Key:
    """The key that is asked for, without its times."""
    scopes = {_SCOPES[scope] for scope in request.scopes} or {Scope.SESSIONS}
    return Key(
        credential_id=minted.credential_id,
        digest=minted.digest,
        scope_names=",".join(sorted(scope.value for scope in scopes)),
        tenant=request.tenant,
        label=request.label,
    )


def token(request: pb.CreateTokenRequest, minted: Minted) -> Token:
    """As `key`."""
    named = same_named(request, Token.__dataclass_fields__)
    return Token(credential_id=minted.credential_id, digest=minted.digest, **named)


def lifetime_ms(request: pb.CreateKeyRequest | pb.CreateTokenRequest) -> int:
    """0: for ever. Raises InvalidField."""
    if not request.HasField("expires_in_seconds"):
        return 0
    if not 1 <= request.expires_in_seconds <= MAX_EXPIRY_SECONDS:
        raise validation.invalid("expires_in_seconds", f"must be at least 1 and at most {MAX_EXPIRY_SECONDS}")
    return request.expires_in_seconds * 1000


def quota(request: pb.SetQuotaRequest) -> Quota | None:
    """None: the router's defaults. Raises InvalidField."""
    if not request.HasField("quota"):
        return None
    limits = same_named(request.quota, Quota.__dataclass_fields__)
    if max(limits.values()) > validation.MAX_COUNT:
        raise validation.invalid("quota", f"each limit must be at most {validation.MAX_COUNT}")
    return Quota(**limits)
