"""The choice of a generate's next token, by all that it is held to."""

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.lanes.operation import Choice, Generate
from kakeya_worker.engine.sampling.sampling import choose, token_detail


def next_choice(generate: Generate, logits: NDArray[np.float32], history_index: int) -> Choice:
    """Chosen from the logits [vocab] of the token before that index, which was delivered.

    Raises:
        FloatingPointError: the logits are not finite.
        InvalidField: the grammar is too much.
    """
    masked, allowed = generate.masked_token_ids, None
    if generate.constraint is not None:
        allows = generate.constraint.allowed()
        allowed = allows.token_ids
        if allows.ends_only:  # it may be before `min_tokens`
            masked = frozenset()
    token_id = choose(logits, generate.sampling, history_index, generate.counts, masked=masked, allowed=allowed)
    num_top = generate.num_top_logprobs
    return token_id, None if num_top is None else token_detail(logits, token_id, num_top)
