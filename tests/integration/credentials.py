"""Keys and tokens of a runtime that asks for them, made and revoked as an operator does it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from kakeya_stubs.admin.v1 import admin_pb2, admin_pb2_grpc
from tests.integration.processes import Runtime

_CALL_SECONDS = 60


class Operator:
    """Calls of AdminService. Use `operator_of`."""

    def __init__(self, channel: grpc.Channel, made: Runtime) -> None:
        self._admin = admin_pb2_grpc.AdminServiceStub(channel)
        self._metadata = made.admin_metadata

    def make_key(self, tenant: str, scope: admin_pb2.Scope.ValueType = admin_pb2.SCOPE_SESSIONS) -> str:
        """Returns its secret."""
        answer = self._call("CreateKey", admin_pb2.CreateKeyRequest(tenant=tenant, scopes=[scope]))
        return str(answer.secret)

    def make_token(self, pool: str) -> str:
        """Returns its secret."""
        return str(self._call("CreateToken", admin_pb2.CreateTokenRequest(pool=pool)).secret)

    def set_quota(self, tenant: str, quota: admin_pb2.Quota) -> None:
        self._call("SetQuota", admin_pb2.SetQuotaRequest(tenant=tenant, quota=quota))

    def drain(self, worker_id: str) -> None:
        """Has a worker emptied."""
        self._call("DrainWorker", admin_pb2.DrainWorkerRequest(worker_id=worker_id))

    def revoke_all(self) -> None:
        """Every key, token and quota that is in Redis."""
        for key in self._call("ListKeys", admin_pb2.ListKeysRequest()).keys:
            self._call("RevokeKey", admin_pb2.RevokeKeyRequest(key_id=key.key_id))
        for token in self._call("ListTokens", admin_pb2.ListTokensRequest()).tokens:
            self._call("RevokeToken", admin_pb2.RevokeTokenRequest(token_id=token.token_id))
        for tenant in self._call("ListTenants", admin_pb2.ListTenantsRequest()).tenants:
            if tenant.has_own_quota:
                self._call("SetQuota", admin_pb2.SetQuotaRequest(tenant=tenant.name))

    def _call(self, method: str, request: Any) -> Any:
        return getattr(self._admin, method)(request, timeout=_CALL_SECONDS, metadata=self._metadata)


@contextmanager
def operator_of(made: Runtime) -> Iterator[Operator]:
    with grpc.insecure_channel(made.address) as channel:
        yield Operator(channel, made)
