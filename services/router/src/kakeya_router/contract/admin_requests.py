"""What an operator's request must be like, and what it asks for in the store's words."""

import re
from collections.abc import Iterable

from kakeya_router.contract import validation, worker_claims
from kakeya_router.store.access import credentials
from kakeya_router.store.access.credential_records import Key, QuotaRecord, Token
from kakeya_router.store.access.credentials import Minted
from kakeya_router.store.access.rights import Scope
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_shared.contract import labels
from kakeya_shared.errors.tree import CredentialNotFound
from kakeya_stubs.admin.v1 import admin_pb2 as pb

MAX_LABEL_BYTES = 256
# What never expires says so by leaving it unset.
MAX_EXPIRY_SECONDS = 100 * 365 * 86_400
# Scripts compare quotas as doubles.
MAX_QUOTA = 1 << 53

_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SCOPES = {pb.SCOPE_SESSIONS: Scope.SESSIONS, pb.SCOPE_ADMIN: Scope.ADMIN}


def check_key(request: pb.CreateKeyRequest) -> None:
    """Raises InvalidField."""
    check_tenant(request.tenant)
    validation.check_text("label", request.label, MAX_LABEL_BYTES)
    if not set(request.scopes) <= _SCOPES.keys():
        raise validation.invalid("scopes", "there is no such scope")


def check_token(request: pb.CreateTokenRequest) -> None:
    """Raises InvalidField."""
    if request.pool:
        worker_claims.check_pool(request.pool)
    validation.check_text("worker_id", request.worker_id, worker_claims.MAX_WORKER_ID_BYTES)
    validation.check_text("model", request.model, labels.MAX_MODEL_BYTES)
    validation.check_text("label", request.label, MAX_LABEL_BYTES)


def check_tenant(tenant: str) -> None:
    """Raises InvalidField."""
    if not _TENANT.fullmatch(tenant):
        raise validation.invalid("tenant", f"must match {_TENANT.pattern}")


def check_list_sessions(request: pb.ListSessionsRequest) -> None:
    """Raises InvalidField."""
    if request.tenant:
        check_tenant(request.tenant)
    if request.pool:
        worker_claims.check_pool(request.pool)


def check_drain(request: pb.DrainWorkerRequest) -> None:
    """Raises InvalidField."""
    validation.check_text("worker_id", request.worker_id, worker_claims.MAX_WORKER_ID_BYTES)
    if request.pool:
        worker_claims.check_pool(request.pool)


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
    return Key(
        credential_id=minted.credential_id,
        digest=minted.digest,
        tenant=request.tenant,
        scope_names=_scope_names(request),
        label=request.label,
    )


def token(request: pb.CreateTokenRequest, minted: Minted) -> Token:
    """As `key`."""
    return Token(
        credential_id=minted.credential_id,
        digest=minted.digest,
        pool=request.pool,
        worker_id=request.worker_id,
        model=request.model,
        label=request.label,
    )


def _scope_names(request: pb.CreateKeyRequest) -> str:
    """As a `Key` has them."""
    scopes = {_SCOPES[scope] for scope in request.scopes} or {Scope.SESSIONS}
    return ",".join(sorted(scope.value for scope in scopes))


def lifetime_ms(request: pb.CreateKeyRequest | pb.CreateTokenRequest) -> int:
    """0: for ever. Raises InvalidField."""
    if not request.HasField("expires_in_seconds"):
        return 0
    if not 1 <= request.expires_in_seconds <= MAX_EXPIRY_SECONDS:
        raise validation.invalid("expires_in_seconds", f"must be at least 1 and at most {MAX_EXPIRY_SECONDS}")
    return request.expires_in_seconds * 1000


def quota(request: pb.SetQuotaRequest) -> QuotaRecord | None:
    """None: the router's defaults. Raises InvalidField."""
    if not request.HasField("quota"):
        return None
    asked = request.quota
    largest = max(asked.max_sessions, asked.max_reserved_bytes, asked.tokens_per_minute)
    if largest > MAX_QUOTA:
        raise validation.invalid("quota", f"each limit must be at most {MAX_QUOTA}")
    return QuotaRecord(
        max_sessions=asked.max_sessions,
        max_reserved_bytes=asked.max_reserved_bytes,
        tokens_per_minute=asked.tokens_per_minute,
    )
