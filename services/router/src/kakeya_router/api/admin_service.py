"""kakeya.admin.v1.AdminService: for operators. Who may call it is `access_guard`'s to say."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

import grpc

from kakeya_router.access import audit, callers
from kakeya_router.access.tenants import Tenants
from kakeya_router.api import admin_messages
from kakeya_router.api.session_pages import SessionPages
from kakeya_router.api.watching import Watching
from kakeya_router.contract import admin_requests
from kakeya_router.sessions.sessions import Sessions
from kakeya_router.store.access.credential_records import Key, Token
from kakeya_router.store.access.credential_store import CredentialStore
from kakeya_router.store.access.credentials import Kind, mint
from kakeya_router.store.fleet.worker_store import WorkerStore
from kakeya_shared.process.detached_tasks import DetachedTasks
from kakeya_shared.rpc.rpc_boundary import Context
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from kakeya_stubs.admin.v1 import admin_pb2_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["AdminService"].full_name


@dataclass(eq=False)
class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """Serves operators: keys, tokens, quotas, everybody's sessions, workers.

    What changes something is audited; lists, which dashboards poll, are not. A change and its line are completed
    although the client is gone: what has come to Redis may be done.
    """

    _credentials: CredentialStore
    _tenants: Tenants
    _pages: SessionPages
    _sessions: Sessions
    _workers: WorkerStore
    _tasks: DetachedTasks
    _watching: Watching

    def register(self, server: grpc.aio.Server) -> None:
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self, server)

    async def CreateKey(self, request: pb.CreateKeyRequest, context: Context) -> pb.CreateKeyResponse:
        return await self._tasks.complete(self._create_key(request))

    async def ListKeys(self, request: pb.ListKeysRequest, context: Context) -> pb.ListKeysResponse:
        admin_requests.check(request)
        keys = await self._credentials.all(Key)
        return pb.ListKeysResponse(keys=[admin_messages.key(key) for key in keys if request.tenant in ("", key.tenant)])

    async def RevokeKey(self, request: pb.RevokeKeyRequest, context: Context) -> pb.RevokeKeyResponse:
        return await self._tasks.complete(self._revoke_key(request))

    async def CreateToken(self, request: pb.CreateTokenRequest, context: Context) -> pb.CreateTokenResponse:
        return await self._tasks.complete(self._create_token(request))

    async def ListTokens(self, request: pb.ListTokensRequest, context: Context) -> pb.ListTokensResponse:
        return pb.ListTokensResponse(tokens=map(admin_messages.token, await self._credentials.all(Token)))

    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Context) -> pb.RevokeTokenResponse:
        return await self._tasks.complete(self._revoke_token(request))

    async def SetQuota(self, request: pb.SetQuotaRequest, context: Context) -> pb.SetQuotaResponse:
        return await self._tasks.complete(self._set_quota(request))

    async def ListTenants(self, request: pb.ListTenantsRequest, context: Context) -> pb.ListTenantsResponse:
        return pb.ListTenantsResponse(tenants=map(admin_messages.tenant, await self._tenants.all()))

    async def ListSessions(self, request: pb.ListSessionsRequest, context: Context) -> pb.ListSessionsResponse:
        admin_requests.check(request)
        page, next_token = await self._pages.page(request.pool, request.page_token, request.page_size)
        return pb.ListSessionsResponse(
            sessions=[admin_messages.session(each) for each in page if request.tenant in ("", each.record.tenant)],
            next_page_token=next_token,
        )

    async def CloseSession(self, request: pb.CloseSessionRequest, context: Context) -> pb.CloseSessionResponse:
        return await self._tasks.complete(self._close_session(request))

    async def ListWorkers(self, request: pb.ListWorkersRequest, context: Context) -> pb.ListWorkersResponse:
        workers = await self._workers.all_workers()
        now_ms = await self._workers.now_ms()
        return pb.ListWorkersResponse(workers=[admin_messages.worker(worker, now_ms) for worker in workers])

    async def DrainWorker(self, request: pb.DrainWorkerRequest, context: Context) -> pb.DrainWorkerResponse:
        return await self._tasks.complete(self._drain_worker(request))

    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncIterator[pb.WatchResponse]:
        async with aclosing(self._watching.watch(request, context)) as responses:
            async for response in responses:
                yield response

    async def _create_key(self, request: pb.CreateKeyRequest) -> pb.CreateKeyResponse:
        with audit.action("key.create") as entry:
            admin_requests.check_tenant(request.tenant)
            admin_requests.check(request)
            lifetime_ms = admin_requests.lifetime_ms(request)
            while True:
                minted = mint(Kind.KEY)
                entry.subject = f"key:{minted.credential_id} tenant:{request.tenant}"
                key = await self._credentials.create(admin_requests.key(request, minted), lifetime_ms)
                if key is not None:  # else another key has this id: one try in a few million with 10,000 keys
                    return pb.CreateKeyResponse(key=admin_messages.key(key), secret=minted.secret)

    async def _revoke_key(self, request: pb.RevokeKeyRequest) -> pb.RevokeKeyResponse:
        with audit.action("key.revoke") as entry:
            admin_requests.check_credential_id(request.key_id)
            entry.subject = f"key:{request.key_id}"
            key = await self._credentials.revoke(Key, request.key_id)
            if key is None:
                raise admin_requests.credential_not_found()
            entry.subject += f" tenant:{key.tenant}"
        return pb.RevokeKeyResponse(key=admin_messages.key(key))

    async def _create_token(self, request: pb.CreateTokenRequest) -> pb.CreateTokenResponse:
        with audit.action("token.create") as entry:
            admin_requests.check(request)
            lifetime_ms = admin_requests.lifetime_ms(request)
            while True:
                minted = mint(Kind.TOKEN)
                entry.subject = f"token:{minted.credential_id}"
                token = await self._credentials.create(admin_requests.token(request, minted), lifetime_ms)
                if token is not None:  # as above
                    return pb.CreateTokenResponse(token=admin_messages.token(token), secret=minted.secret)

    async def _revoke_token(self, request: pb.RevokeTokenRequest) -> pb.RevokeTokenResponse:
        with audit.action("token.revoke") as entry:
            admin_requests.check_credential_id(request.token_id)
            entry.subject = f"token:{request.token_id}"
            token = await self._credentials.revoke(Token, request.token_id)
            if token is None:
                raise admin_requests.credential_not_found()
        return pb.RevokeTokenResponse(token=admin_messages.token(token))

    async def _set_quota(self, request: pb.SetQuotaRequest) -> pb.SetQuotaResponse:
        with audit.action("quota.set") as entry:
            admin_requests.check_tenant(request.tenant)
            entry.subject = f"tenant:{request.tenant}"
            tenant = await self._tenants.set_quota(request.tenant, admin_requests.quota(request))
        return pb.SetQuotaResponse(tenant=admin_messages.tenant(tenant))

    async def _close_session(self, request: pb.CloseSessionRequest) -> pb.CloseSessionResponse:
        with audit.action("session.close") as entry:
            session_id = callers.check_issued(request.session_id)
            entry.subject = f"session:{session_id}"
            final_length = await self._sessions.close(session_id)
        return pb.CloseSessionResponse(final_history_length=final_length)

    async def _drain_worker(self, request: pb.DrainWorkerRequest) -> pb.DrainWorkerResponse:
        with audit.action("worker.undrain" if request.undo else "worker.drain") as entry:
            admin_requests.check(request)
            entry.subject = f"worker:{request.worker_id}"
            worker = admin_requests.named_worker(request, await self._workers.all_workers())
            entry.subject += f" pool:{worker.pool}"
            await self._workers.mark_draining(worker, draining=not request.undo)
            marked = admin_requests.named_worker(request, await self._workers.workers(worker.pool))
        return pb.DrainWorkerResponse(worker=admin_messages.worker(marked, await self._workers.now_ms()))
