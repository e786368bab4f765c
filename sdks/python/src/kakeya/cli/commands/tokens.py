"""`kakeya tokens`: tokens with which workers join."""

import shlex
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from kakeya.cli.commands import admin_command
from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.cli.commands.admin_command import Verb
from kakeya.cli.flags.connection import Connection
from kakeya.cli.output import moment, new_secret
from kakeya.cli.output.document import document
from kakeya.cli.output.table import Cell, print_list, printable
from kakeya_stubs.admin.v1 import admin_pb2 as pb

SUMMARY = "make, list and revoke the tokens with which workers join"

_HEADER = ("TOKEN", "POOL", "WORKER", "MODEL", "CREATED", "EXPIRES", "LABEL")
_ANY = "any"
_MODEL = "MODEL"


def main(argv: list[str]) -> int:
    verbs = [
        Verb("create", "make a token and print it, once", _create_flags, _create),
        Verb("list", "list tokens, without their secrets", admin_command.json_flag, _list),
        Verb("revoke", "revoke tokens; workers that joined with them are refused", _revoke_flags, _revoke),
    ]
    return admin_command.run("tokens", SUMMARY, verbs, argv)


def _create_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--pool", default="", metavar="NAME", help="the only pool that it admits to. Default any")
    parser.add_argument("--worker-id", default="", metavar="ID", help="the only worker that it admits. Default any")
    parser.add_argument("--model", default="", metavar="NAME", help="the only model that it admits. Default any")
    parser.add_argument(
        "--print-join", action="store_true", help="print the line that starts a worker with it, instead of the token"
    )
    parser.add_argument(
        "--join",
        default="",
        metavar="HOST:PORT",
        help="where workers reach the router. Default: where this command does",
    )
    parser.add_argument(
        "--reverse", action="store_true", help="the line is for a worker that routers cannot dial, as behind NAT"
    )
    new_secret.add_flags(parser)


def _create(admin: AdminCalls, flags: Namespace) -> int:
    request = pb.CreateTokenRequest(
        pool=flags.pool,
        worker_id=flags.worker_id,
        model=flags.model,
        label=flags.label,
        expires_in_seconds=flags.expires_in,
    )
    response = admin.call("CreateToken", request)
    token = response.token
    line = _join_line(token, response.secret, flags)
    explanation = (
        f"token {token.token_id} for pool {token.pool or _ANY}, worker {token.worker_id or _ANY}, model "
        f"{token.model or _ANY}, expires {_expires(token)}. It is shown only now; workers take it from "
        "KAKEYA_WORKER_TOKEN."
    )
    if flags.print_join:
        explanation = " ".join([explanation, *_advice(token, flags, admin.connection)])
    shown = line if flags.print_join else response.secret
    new_secret.show(token, response.secret, explanation, as_json=flags.json, line=shown, more={"join_line": line})
    return 0


def _join_line(token: pb.Token, secret: str, flags: Namespace) -> str:
    """What is pasted on the host of a worker. The secret is in a variable: no list of processes shows it."""
    words = ["kakeya", "worker", "--model", token.model or _MODEL, "--join", flags.join or flags.address]
    words += ["--pool", token.pool] if token.pool else []
    words += ["--worker-id", token.worker_id] if token.worker_id else []
    words += ["--router-ca", flags.tls_ca.name] if flags.tls_ca else []
    words += ["--reverse"] if flags.reverse else []
    return f"KAKEYA_WORKER_TOKEN={shlex.quote(secret)} {shlex.join(words)}"


def _advice(token: pb.Token, flags: Namespace, connection: Connection) -> Iterator[str]:
    yield "As a service: `kakeya worker install-service` in place of `kakeya worker`."
    if not token.model:
        yield f"Put the model in the place of {_MODEL}."
    if flags.tls_ca:
        yield f"Copy {flags.tls_ca} to where the line is pasted."
    if not flags.join and connection.is_here:
        yield "Only this host reaches that address: --join HOST:PORT names one for workers elsewhere."


def _list(admin: AdminCalls, flags: Namespace) -> int:
    found = admin.call("ListTokens", pb.ListTokensRequest()).tokens
    tokens = sorted(found, key=lambda token: token.created_at)
    documents = [document(token) for token in tokens]
    print_list(documents, _HEADER, [_row(token) for token in tokens], as_json=flags.json, empty="no tokens")
    return 0


def _revoke_flags(parser: ArgumentParser) -> None:
    parser.add_argument("token_ids", nargs="+", metavar="TOKEN", help="ids, as `kakeya tokens list` shows them")


def _revoke(admin: AdminCalls, flags: Namespace) -> int:
    def revoke(token_id: str) -> str:
        token = admin.call("RevokeToken", pb.RevokeTokenRequest(token_id=token_id)).token
        return f"revoked {printable(token.token_id)}"

    return admin_command.each("tokens", admin, flags.token_ids, revoke)


def _row(token: pb.Token) -> tuple[Cell, ...]:
    created = moment.ago(token.created_at, time.time())
    scope = (token.pool or _ANY, token.worker_id or _ANY, token.model or _ANY)
    return token.token_id, *scope, created, _expires(token), token.label


def _expires(token: pb.Token) -> str:
    return moment.until(token.expires_at, time.time())
