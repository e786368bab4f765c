"""What keys, quotas and the queue cost a call that is let in.

Two routers side by side on one Redis and one worker: one asks for no keys and refuses where there is no room, the
other asks for keys, has quotas set and queues. Calls alternate between them, and so does which comes first. Two equal
processes differ by some percent for as long as they live (hash seed, addresses), which no number of calls would show:
hence several such pairs, one after the other, and an interval over pairs. The worker has no model
(tests/unit/router/fake_worker.py, in a process of its own): a forward pass takes many times as long as what is to be
measured here, and varies by more than that.

Exits with 1 when the medians differ by more than 1 ms (CreateSession) or 0.2 ms (Generate of one token), in the mean
over pairs.
"""

import asyncio
from collections.abc import Callable, Sequence

from kakeya_shared.settings.service import setting
from kakeya_stubs.admin.v1.admin_pb2 import Quota
from tests.benchmarks import bench, pairs
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.calls import side_by_side, worker_without_model
from tests.benchmarks.calls.side_by_side import Caller, Kind
from tests.integration.credentials import operator_of
from tests.integration.processes import Runtime, asking_for_keys, bearer

BOUND_MS = {"CreateSession": 1.0, "Generate": 0.2}
QUOTA = Quota(max_sessions=1_000, max_reserved_bytes=1 << 40, tokens_per_minute=1 << 40)
OPEN = Kind("open", ("--auth=none", "--admission=reject"))
KEYED = Kind("keyed", ("--auth=keys", "--admission=queue", "--key-max-sessions=1000"), asking_for_keys())
_NUM_WARM = 100


class AdmissionSettings(BenchSettings):
    pairs: int = setting(10, "pairs of routers, one after the other", reason="two minutes", metavar="N", ge=1)
    calls: int = setting(600, "calls of each kind on each router of a pair", reason="seconds", metavar="N", ge=1)


async def compare(made: Sequence[Runtime], key: str, num_calls: int, on_calls: Callable[[str], None]) -> list[Caller]:
    """One pair: the open router's calls and the other's."""
    async with side_by_side.stubs(made) as (open_, keyed):
        callers = [Caller(open_), Caller(keyed, bearer(key))]
        sides = [(caller, await caller.create()) for caller in callers]
        for caller, session_id in sides:
            await caller.append(session_id, 8)
        for number, order in enumerate(pairs.in_turn(sides, _NUM_WARM + num_calls)):
            for caller, session_id in order:
                if number == _NUM_WARM:
                    caller.seconds.clear()
                created = await caller.create()
                await caller.generate(session_id, 1)
                await caller.close(created)
            on_calls("calls")
        for caller, session_id in sides:
            await caller.close(session_id)
    return callers


@bench.command(AdmissionSettings)
def measure(settings: AdmissionSettings, stage: Stage) -> Found:
    step, measured = stage.steps(settings.pairs * (_NUM_WARM + settings.calls)), []
    for number in range(settings.pairs):
        with (
            side_by_side.routers((OPEN, KEYED), stage.directory, in_order=number % 2 == 0) as made,
            worker_without_model.joining(made[:1]),  # the one that asks for no token
        ):
            made[1].wait_for_workers(1)
            with operator_of(made[1]) as operator:
                key = operator.make_key("bench")
                operator.set_quota("bench", QUOTA)
            measured.append(asyncio.run(compare(made, key, settings.calls, step)))
    found = pairs.added([[caller.seconds for caller in pair] for pair in measured], ("open", "keyed"), BOUND_MS)
    return {"pairs": settings.pairs, "calls_per_pair": settings.calls, **found}, pairs.verdicts(found)
