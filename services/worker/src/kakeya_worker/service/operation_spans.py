"""What an operation's time was spent on, as spans."""

from collections.abc import Iterator
from contextlib import contextmanager

from kakeya_shared.rpc import tracing
from kakeya_worker.engine.lanes.operation import Append, Generate


@contextmanager
def timed_append(append: Append) -> Iterator[None]:
    """Tells spans of it once it is over: `queue` until its first step, then `prefill`, one for all its chunks."""
    try:
        yield
    finally:
        tracing.past("queue", append.started, append.stepped)
        tracing.past("prefill", append.stepped, append.ended, appended=append.num_done, chunks=append.num_steps)


@contextmanager
def timed_generate(generate: Generate) -> Iterator[None]:
    """Likewise: `queue`, `first_token` until that is chosen, then `decode`, one for all that follow."""
    num_before = generate.num_generated
    try:
        yield
    finally:
        tracing.past("queue", generate.started, generate.stepped)
        tracing.past("first_token", generate.stepped, generate.first_token)
        num_own = generate.num_generated - num_before
        tracing.past(
            "decode",
            generate.first_token,
            generate.ended,
            generated=num_own,
            steps=generate.num_steps,
            drafted=generate.num_drafted,
            accepted=generate.num_accepted,
        )
