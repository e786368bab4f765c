"""An AdminService for tests of the commands: the real contract on a real socket, with faults on request."""

from collections import defaultdict, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from kakeya_stubs.admin.v1 import admin_pb2 as pb
from kakeya_stubs.admin.v1 import admin_pb2_grpc
from tests.unit.sdk.scripted_runtime import Fault, fails, stalls

SECRET = "kakeya_key_0123456789ab_" + "s" * 43
TOKEN_SECRET = "kakeya_join_0123456789ab_" + "t" * 43


class ScriptedAdmin(admin_pb2_grpc.AdminServiceServicer):
    """Serves until `stop`.

    Attributes:
        requests: what came, by method, in order.
        metadata: what came with it.
        before: faults for the next calls of a method.
        keys, tokens, tenants, workers: what the lists answer.
        session_pages: one response of ListSessions after the other.
        session_ids: those that can be closed.
        default_quota: of tenants without their own.
        streams: what each call of Watch says, one after the other: responses and faults; the last one goes on for ever.
    """

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.requests: dict[str, list[Any]] = defaultdict(list)
        self.metadata: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.before: dict[str, deque[Fault]] = defaultdict(deque)
        self.keys: list[pb.Key] = []
        self.tokens: list[pb.Token] = []
        self.tenants: list[pb.Tenant] = []
        self.workers: list[pb.WorkerStatus] = []
        self.session_pages: list[list[pb.Session]] = [[]]
        self.session_ids: list[str] = []
        self.default_quota = pb.Quota(max_sessions=7)
        self.streams: deque[list[pb.WatchResponse | Fault]] = deque()
        self.num_watching = 0
        self._server = grpc.server(ThreadPoolExecutor(max_workers=4), options=[("grpc.so_reuseport", 0)])
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self, self._server)
        if credentials is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self.address = f"127.0.0.1:{port}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()

    def CreateKey(self, request: pb.CreateKeyRequest, context: grpc.ServicerContext) -> Any:
        self._come("CreateKey", request, context)
        scopes = list(request.scopes) or [pb.SCOPE_SESSIONS]
        expires_at = 2e9 + request.expires_in_seconds if request.HasField("expires_in_seconds") else 0
        key = pb.Key(key_id="0123456789ab", tenant=request.tenant, scopes=scopes, label=request.label)
        key.created_at, key.expires_at = 1_700_000_000.75, expires_at
        self.keys.append(key)
        return pb.CreateKeyResponse(key=key, secret=SECRET)

    def ListKeys(self, request: pb.ListKeysRequest, context: grpc.ServicerContext) -> Any:
        self._come("ListKeys", request, context)
        return pb.ListKeysResponse(keys=[key for key in self.keys if request.tenant in ("", key.tenant)])

    def RevokeKey(self, request: pb.RevokeKeyRequest, context: grpc.ServicerContext) -> Any:
        self._come("RevokeKey", request, context)
        found = [key for key in self.keys if key.key_id == request.key_id]
        if not found:
            fails("CREDENTIAL_NOT_FOUND")(context)
        self.keys.remove(found[0])
        return pb.RevokeKeyResponse(key=found[0])

    def CreateToken(self, request: pb.CreateTokenRequest, context: grpc.ServicerContext) -> Any:
        self._come("CreateToken", request, context)
        token = pb.Token(token_id="0123456789ab", label=request.label)
        token.pool, token.worker_id, token.model = request.pool, request.worker_id, request.model
        token.created_at = 1_700_000_000
        self.tokens.append(token)
        return pb.CreateTokenResponse(token=token, secret=TOKEN_SECRET)

    def ListTokens(self, request: pb.ListTokensRequest, context: grpc.ServicerContext) -> Any:
        self._come("ListTokens", request, context)
        return pb.ListTokensResponse(tokens=self.tokens)

    def RevokeToken(self, request: pb.RevokeTokenRequest, context: grpc.ServicerContext) -> Any:
        self._come("RevokeToken", request, context)
        return pb.RevokeTokenResponse(token=pb.Token(token_id=request.token_id))

    def SetQuota(self, request: pb.SetQuotaRequest, context: grpc.ServicerContext) -> Any:
        self._come("SetQuota", request, context)
        own = request.HasField("quota")
        quota = request.quota if own else self.default_quota
        return pb.SetQuotaResponse(tenant=pb.Tenant(name=request.tenant, quota=quota, has_own_quota=own))

    def ListTenants(self, request: pb.ListTenantsRequest, context: grpc.ServicerContext) -> Any:
        self._come("ListTenants", request, context)
        return pb.ListTenantsResponse(tenants=self.tenants)

    def ListSessions(self, request: pb.ListSessionsRequest, context: grpc.ServicerContext) -> Any:
        self._come("ListSessions", request, context)
        page = int(request.page_token or 0)
        is_last = page + 1 == len(self.session_pages)
        next_page_token = "" if is_last else str(page + 1)
        return pb.ListSessionsResponse(sessions=self.session_pages[page], next_page_token=next_page_token)

    def CloseSession(self, request: pb.CloseSessionRequest, context: grpc.ServicerContext) -> Any:
        self._come("CloseSession", request, context)
        if request.session_id not in self.session_ids:
            fails("SESSION_NOT_FOUND")(context)
        return pb.CloseSessionResponse(final_history_length=12_345)

    def ListWorkers(self, request: pb.ListWorkersRequest, context: grpc.ServicerContext) -> Any:
        self._come("ListWorkers", request, context)
        return pb.ListWorkersResponse(workers=self.workers)

    def DrainWorker(self, request: pb.DrainWorkerRequest, context: grpc.ServicerContext) -> Any:
        self._come("DrainWorker", request, context)
        found = [worker for worker in self.workers if worker.worker_id == request.worker_id]
        if not found:
            fails("INVALID_FIELD", field="worker_id")(context)
        found[0].draining = not request.undo
        return pb.DrainWorkerResponse(worker=found[0])

    def Watch(self, request: pb.WatchRequest, context: grpc.ServicerContext) -> Iterator[pb.WatchResponse]:
        self._come("Watch", request, context)
        self.num_watching += 1
        context.add_callback(self._leave)
        stream = self.streams.popleft()
        for each in stream:
            if isinstance(each, pb.WatchResponse):
                yield each
            else:
                each(context)
        if not self.streams:
            stalls(context)

    def _leave(self) -> None:
        self.num_watching -= 1

    def _come(self, method: str, request: Any, context: grpc.ServicerContext) -> None:
        self.requests[method].append(request)
        self.metadata[method].append(dict(context.invocation_metadata()))
        if self.before[method]:
            self.before[method].popleft()(context)
