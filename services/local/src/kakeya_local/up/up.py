"""`kakeya up`: runs a stack in the foreground until it is told to stop."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack

from kakeya.cli.output.table import printable
from kakeya_local.errors import StackError
from kakeya_local.settings import UpSettings
from kakeya_local.signals import cancelled_by_signals
from kakeya_local.stack.planning.plan import Plan
from kakeya_local.stack.stack import running
from kakeya_local.terminal import print_table
from kakeya_local.up.key_handover import handed_over
from kakeya_local.up.lane_report import lane_line
from kakeya_shared.settings.window import MAX

_MAX_TOKENS = 64
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


async def up(settings: UpSettings) -> int:
    """Returns the exit status: 0 after a signal, 1 where the stack cannot start or go on."""
    try:
        with cancelled_by_signals():
            await _serve(settings)
    except StackError as error:
        print(f"kakeya up: error: {printable(str(error))}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        _report("stopped")
    return 0


async def _serve(settings: UpSettings) -> None:
    async with running(settings, _report) as stack, AsyncExitStack() as handover:
        rows = [
            (row.name, row.address, str(row.pid), printable(str(row.log)), row.metrics) for row in await stack.table()
        ]
        print_table(rows, header=("process", "address", "pid", "log", "metrics"))
        _report(lane_line(stack.workers, is_largest=settings.window == MAX))
        if (credentials := stack.plan.credentials) and credentials.is_new:
            lines = handover.enter_context(handed_over(credentials.admin_key, stack.directory.path))
            print(*lines, sep="\n", file=sys.stderr, flush=True)
        print(*_ready(stack.plan), sep="\n", flush=True)
        await stack.watch()


def _ready(plan: Plan) -> list[str]:
    """A request that works, and where everything is served."""
    if plan.http is None:
        return [f"ready grpc={plan.bind}"]
    entrance = plan.http.entrance
    ca = os.environ.get("KAKEYA_TLS_CA", "") if entrance.tls else ""
    with_key = plan.settings.asks_for_keys
    curl = curl_line(entrance.url, plan.http.model, with_key=with_key, ca=ca, environment=os.environ)
    return [curl, f"ready grpc={plan.bind} http={plan.http.bind}"]


def _report(line: str) -> None:
    print(f"kakeya up: {line}", file=sys.stderr, flush=True)


def curl_line(url: str, model: str, *, with_key: bool, ca: str = "", environment: Mapping[str, str] = {}) -> str:
    """A first request, a chat completion, to be tried in a shell.

    Args:
        with_key: whether it shows $KAKEYA_API_KEY.
        ca: authorities of the certificate behind `url`, in PEM; "" for those that curl knows.
        environment: of the shell; where it names a proxy, that is not asked.
    """
    body = {"model": model, "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": _MAX_TOKENS}
    words = ["curl", shlex.quote(f"{url}/v1/chat/completions"), "-H 'Content-Type: application/json'"]
    if any(environment.get(name) for name in _PROXY_VARIABLES):
        words.append("--noproxy '*'")
    if with_key:
        words.append('-H "Authorization: Bearer $KAKEYA_API_KEY"')
    if ca:
        words.append(f"--cacert {shlex.quote(ca)}")
    return " ".join([*words, "-d", shlex.quote(json.dumps(body))])
