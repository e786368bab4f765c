"""Which generates of a step know what they may choose: a grammar whose masks take long delays nobody else."""

import time

from kakeya_worker.engine.lanes.operation import Generate

# For all masks of a step together that are not there when it begins. Nearly all are, or come within this time, and a
# row that is left out waits for the next forward pass.
LATE_SECONDS = 0.002


def that_can_choose(generates: list[Generate], *, has_others: bool) -> list[Generate]:
    """Those whose masks are there, or soon; all, which then wait for it, where nobody else has work.

    Args:
        has_others: something else can be done in the step.
    """
    late = [each for each in generates if each.constraint is not None and not each.constraint.is_ready]
    if not late:
        return generates
    ends_at = time.monotonic() + LATE_SECONDS
    for generate in late:
        if generate.constraint is not None:
            generate.constraint.wait(max(0.0, ends_at - time.monotonic()))
    ready = [each for each in generates if each.constraint is None or each.constraint.is_ready]
    return ready if ready or has_others else generates
