"""`kakeya keys`: keys of tenants."""

import time
from argparse import ArgumentParser, Namespace

from kakeya.cli.commands import admin_command
from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.cli.commands.admin_command import Verb
from kakeya.cli.output import moment, new_secret
from kakeya.cli.output.document import document, enum_name
from kakeya.cli.output.table import Cell, print_list, printable
from kakeya_stubs.admin.v1 import admin_pb2 as pb

SUMMARY = "make, list and revoke the keys of tenants"

_SCOPES = {"sessions": pb.SCOPE_SESSIONS, "admin": pb.SCOPE_ADMIN}
_HEADER = ("KEY", "TENANT", "SCOPES", "CREATED", "EXPIRES", "LABEL")


def main(argv: list[str]) -> int:
    verbs = [
        Verb("create", "make a key and print it, once", _create_flags, _create),
        Verb("list", "list keys, without their secrets", _list_flags, _list),
        Verb("revoke", "revoke keys; every router refuses them within a second", _revoke_flags, _revoke),
    ]
    return admin_command.run("keys", SUMMARY, verbs, argv)


def _create_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--tenant", required=True, metavar="NAME", help="whose sessions it makes and uses")
    parser.add_argument(
        "--scope",
        action="extend",
        nargs="+",
        choices=_SCOPES,
        help="what it is good for: sessions, admin (these commands), or both. Default sessions",
    )
    new_secret.add_flags(parser)


def _create(admin: AdminCalls, flags: Namespace) -> int:
    request = pb.CreateKeyRequest(
        tenant=flags.tenant,
        scopes=[_SCOPES[name] for name in dict.fromkeys(flags.scope or ())],
        label=flags.label,
        expires_in_seconds=flags.expires_in,
    )
    response = admin.call("CreateKey", request)
    key = response.key
    explanation = (
        f"key {key.key_id} of tenant {key.tenant}, for {_scopes(key)}, expires {_expires(key)}. It is shown only now; "
        "clients take it from KAKEYA_API_KEY."
    )
    new_secret.show(key, response.secret, explanation, as_json=flags.json)
    return 0


def _list_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--tenant", default="", metavar="NAME", help="only this tenant's")
    admin_command.json_flag(parser)


def _list(admin: AdminCalls, flags: Namespace) -> int:
    found = admin.call("ListKeys", pb.ListKeysRequest(tenant=flags.tenant)).keys
    keys = sorted(found, key=lambda key: (key.tenant, key.created_at))
    documents = [document(key) for key in keys]
    print_list(documents, _HEADER, [_row(key) for key in keys], as_json=flags.json, empty="no keys")
    return 0


def _revoke_flags(parser: ArgumentParser) -> None:
    parser.add_argument("key_ids", nargs="+", metavar="KEY", help="ids, as `kakeya keys list` shows them")


def _revoke(admin: AdminCalls, flags: Namespace) -> int:
    def revoke(key_id: str) -> str:
        key = admin.call("RevokeKey", pb.RevokeKeyRequest(key_id=key_id)).key
        return f"revoked {printable(key.key_id)} of tenant {printable(key.tenant)}"

    return admin_command.each("keys", admin, flags.key_ids, revoke)


def _row(key: pb.Key) -> tuple[Cell, ...]:
    created = moment.ago(key.created_at, time.time())
    return key.key_id, key.tenant, _scopes(key), created, _expires(key), key.label


def _scopes(key: pb.Key) -> str:
    return ", ".join(enum_name(pb.Scope.DESCRIPTOR, scope) for scope in key.scopes)


def _expires(key: pb.Key) -> str:
    return moment.until(key.expires_at, time.time())
