"""`kakeya up`: runs a stack in the foreground until it is told to stop."""

import asyncio
import sys
from contextlib import AsyncExitStack

from kakeya_local.errors import StackError
from kakeya_local.key_handover import handed_over
from kakeya_local.settings import UpSettings
from kakeya_local.signals import cancelled_by_signals
from kakeya_local.stack import running
from kakeya_local.terminal import print_table


async def up(settings: UpSettings) -> int:
    """Returns the exit status: 0 after a signal, 1 where the stack cannot start or go on."""
    try:
        with cancelled_by_signals():
            await _serve(settings)
    except StackError as error:
        print(f"kakeya up: error: {error}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        _report("stopped")
    return 0


async def _serve(settings: UpSettings) -> None:
    async with running(settings, _report) as stack, AsyncExitStack() as handover:
        rows = [(row.name, row.address, str(row.pid), str(row.log)) for row in await stack.table()]
        print_table(rows, header=("process", "address", "pid", "log"))
        if (credentials := stack.plan.credentials) and credentials.is_new:
            lines = handover.enter_context(handed_over(credentials.admin_key, stack.directory.path))
            print(*lines, sep="\n", file=sys.stderr, flush=True)
        print(f"ready grpc={stack.plan.bind}", flush=True)
        await stack.watch()


def _report(line: str) -> None:
    print(f"kakeya up: {line}", file=sys.stderr, flush=True)
