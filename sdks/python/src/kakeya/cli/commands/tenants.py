"""`kakeya tenants`: what tenants may use, and what they do use."""

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import nullcontext

from kakeya.cli.commands import admin_command, watched_list
from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.cli.commands.admin_command import Verb
from kakeya.cli.output import byte_count, moment
from kakeya.cli.output.byte_count import Bytes
from kakeya.cli.output.document import document
from kakeya.cli.output.redrawn import Redrawn
from kakeya.cli.output.table import Cell, print_list, printable, table_lines
from kakeya_stubs.admin.v1 import admin_pb2 as pb

SUMMARY = "show what tenants use, and set what they may use"

_HEADER = (
    "TENANT", "POOL", "SESSIONS", "RESERVED BYTES", "WAITING", "MAX SESSIONS", "MAX BYTES", "TOKENS/MIN", "QUOTA",
)  # fmt: skip
_LIMITS = {
    "max_sessions": "sessions",
    "max_reserved_bytes": "reserved bytes",
    "tokens_per_minute": "tokens a minute",
}
_MOST = 10**15


def main(argv: list[str]) -> int:
    verbs = [
        Verb("list", "list tenants that have keys, quotas of their own, or sessions", _list_flags, _list),
        Verb("set", "set a tenant's quota, in each pool", _set_flags, _set),
    ]
    return admin_command.run("tenants", SUMMARY, verbs, argv)


def _list_flags(parser: ArgumentParser) -> None:
    admin_command.json_flag(parser)
    watched_list.flag(parser)


def _list(admin: AdminCalls, flags: Namespace) -> int:
    if flags.watch:
        return _watch(admin, as_json=flags.json)
    tenants = _tenants(admin)
    rows = [row for tenant in tenants for row in _rows(tenant)]
    print_list([document(tenant) for tenant in tenants], _HEADER, rows, as_json=flags.json, empty="no tenants")
    return 0


def _tenants(admin: AdminCalls) -> list[pb.Tenant]:
    return sorted(admin.call("ListTenants", pb.ListTenantsRequest()).tenants, key=lambda tenant: tenant.name)


def _watch(admin: AdminCalls, *, as_json: bool) -> int:
    """Looks again when the router says that something has changed: what tenants may use is not in what it says."""
    shown: list[pb.Tenant] | None = None
    with nullcontext() if as_json else Redrawn() as screen:
        for response in admin.watch():
            if response.continues or (tenants := _tenants(admin)) == shown:
                continue
            shown = tenants
            if screen is None:
                print(json.dumps({"at": moment.iso(response.at), "tenants": [*map(document, tenants)]}), flush=True)
            else:
                rows = [row for tenant in tenants for row in _rows(tenant)]
                screen.draw(table_lines(_HEADER, rows) if rows else ["no tenants"])
    return 0


def _set_flags(parser: ArgumentParser) -> None:
    parser.description = (
        "Sets a tenant's quota in each pool, in place of the router's defaults and of what was set before: "
        "a limit that is not named is none."
    )
    parser.add_argument("tenant", metavar="NAME")
    parser.add_argument("--max-sessions", type=_count, metavar="N", help="most sessions; 0: no limit")
    parser.add_argument("--max-bytes", type=byte_count.parse, metavar="BYTES", help="most reserved bytes; 0: no limit")
    parser.add_argument(
        "--tokens-per-minute", type=_count, metavar="N", help="tokens, appended and generated; 0: no limit"
    )
    parser.add_argument("--defaults", action="store_true", help="the router's defaults again")
    parser.set_defaults(usage_error=parser.error)


def _set(admin: AdminCalls, flags: Namespace) -> int:
    limits = (flags.max_sessions, flags.max_bytes, flags.tokens_per_minute)
    if flags.defaults == any(limit is not None for limit in limits):
        flags.usage_error("name at least one limit, or --defaults")
    request = pb.SetQuotaRequest(tenant=flags.tenant)
    if not flags.defaults:
        request.quota.SetInParent()
        for name, limit in zip(_LIMITS, limits, strict=True):
            setattr(request.quota, name, limit or 0)
    tenant = admin.call("SetQuota", request).tenant
    kind = "a quota of its own" if tenant.has_own_quota else "the router's defaults"
    print(f"tenant {printable(tenant.name)} has {kind}: {_described(tenant.quota)}")
    return 0


def _described(quota: pb.Quota) -> str:
    limits = {says: getattr(quota, name) for name, says in _LIMITS.items()}
    return ", ".join(f"at most {limit:,} {says}" for says, limit in limits.items() if limit) or "no limits"


def _rows(tenant: pb.Tenant) -> list[tuple[Cell, ...]]:
    """One for each pool that it uses, or one without a pool."""
    quota = tenant.quota
    max_bytes = byte_count.show(quota.max_reserved_bytes) if quota.max_reserved_bytes else ""
    limits = (_limit(quota.max_sessions), max_bytes, _limit(quota.tokens_per_minute))
    kind = "own" if tenant.has_own_quota else "default"
    used = tenant.usage or [pb.PoolUsage()]
    return [
        (tenant.name, usage.pool, usage.num_sessions, Bytes(usage.reserved_bytes), usage.num_waiting, *limits, kind)
        for usage in sorted(used, key=lambda usage: usage.pool)
    ]


def _limit(limit: int) -> str:
    return f"{limit:,}" if limit else ""


def _count(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or int(text) > _MOST:
        raise ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)
