"""`kakeya sessions`: the sessions of all tenants."""

from argparse import ArgumentParser, Namespace

from kakeya.cli.commands import admin_command, watched_list
from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.cli.commands.admin_command import Verb
from kakeya.cli.commands.watched_list import WatchedList
from kakeya.cli.output import duration
from kakeya.cli.output.byte_count import Bytes
from kakeya.cli.output.document import document
from kakeya.cli.output.table import Cell, print_list, printable
from kakeya_stubs.admin.v1 import admin_pb2 as pb

SUMMARY = "list and close the sessions of all tenants"

_HEADER = (
    "SESSION", "TENANT", "POOL", "WORKER", "STATE", "IDLE", "HISTORY", "KV LIVE BYTES", "RESERVED BYTES", "LABEL",
)  # fmt: skip
_PAGE_SIZE = 1000  # the most that a router gives at once


def main(argv: list[str]) -> int:
    verbs = [
        Verb("list", "list sessions", _list_flags, _list),
        Verb("close", "close sessions of any tenant; what runs on them ends", _close_flags, _close),
    ]
    return admin_command.run("sessions", SUMMARY, verbs, argv)


def _list_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--tenant", default="", metavar="NAME", help="only this tenant's")
    parser.add_argument("--pool", default="", metavar="NAME", help="only those in this pool")
    admin_command.json_flag(parser)
    watched_list.flag(parser)


def _list(admin: AdminCalls, flags: Namespace) -> int:
    if flags.watch:
        return _watched(flags).watch(admin, as_json=flags.json)
    found = _all(admin, pb.ListSessionsRequest(tenant=flags.tenant, pool=flags.pool, page_size=_PAGE_SIZE))
    sessions = sorted(found, key=lambda session: (session.tenant, session.pool, session.idle_seconds))
    documents = [document(session) for session in sessions]
    print_list(documents, _HEADER, [_row(session) for session in sessions], as_json=flags.json, empty="no sessions")
    return 0


def _watched(flags: Namespace) -> WatchedList[pb.Session]:
    return WatchedList(
        kind="session",
        news=lambda response: response.sessions,
        gone=lambda response: response.gone_session_ids,
        name=lambda session: session.session_id,
        header=_HEADER,
        row=_row,
        order=lambda session: (session.tenant, session.pool, not session.busy, session.session_id),
        is_shown=lambda each: flags.tenant in ("", each.tenant) and flags.pool in ("", each.pool),
    )


def _all(admin: AdminCalls, request: pb.ListSessionsRequest) -> list[pb.Session]:
    """All pages. One that changes meanwhile may come twice: the later news of it counts."""
    sessions: dict[str, pb.Session] = {}
    while True:
        response = admin.call("ListSessions", request)
        sessions |= {session.session_id: session for session in response.sessions}
        if not response.next_page_token:
            return list(sessions.values())
        request.page_token = response.next_page_token


def _close_flags(parser: ArgumentParser) -> None:
    parser.add_argument("session_ids", nargs="+", metavar="SESSION", help="ids, as `kakeya sessions list` shows them")


def _close(admin: AdminCalls, flags: Namespace) -> int:
    def close(session_id: str) -> str:
        closed = admin.call("CloseSession", pb.CloseSessionRequest(session_id=session_id))
        return f"closed {printable(session_id)} at {closed.final_history_length:,} tokens"

    return admin_command.each("sessions", admin, flags.session_ids, close)


def _row(session: pb.Session) -> tuple[Cell, ...]:
    return (
        session.session_id,
        session.tenant,
        session.pool,
        session.worker_id,
        session.state,
        "busy" if session.busy else duration.show(session.idle_seconds),
        session.history_length,
        Bytes(session.kv_live_bytes),
        Bytes(session.reserved_bytes),
        session.client_label,
    )
