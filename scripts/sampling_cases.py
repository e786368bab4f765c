"""The choices that the sampling vectors ask for.

Small ones aim at one step or at the order of two; large ones at the arithmetic of a real vocabulary.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sampling_reference import Parameters, philox4x32

SEED = 0xF00D_0000_0000_CAFE  # both halves count


@dataclass(frozen=True)
class RandomLogits:
    """`num` logits between -scale and scale, 24 bits each and so exact in float32; `changed` by id afterwards.

    Logit i is scale * (w / 2^23 - 1), w the upper 24 bits of the first word of Philox4x32-10 with the counter
    (i, 0, 0, 0) and the key (key, 0).
    """

    num: int
    key: int
    scale: float
    changed: Mapping[int, float] = field(default_factory=dict)

    def values(self) -> list[float]:
        words = (philox4x32((token_id, 0, 0, 0), (self.key, 0))[0] >> 8 for token_id in range(self.num))
        drawn = (self.scale * (word / 2**23 - 1) for word in words)
        return [self.changed.get(token_id, logit) for token_id, logit in enumerate(drawn)]


@dataclass(frozen=True)
class Case:
    """Choices from the same logits at consecutive history indices.

    Attributes:
        counts: how often this Generate has produced each id.
        masked: ids that must not be chosen: ends, where none may come.
        num_top_logprobs: None where no log-probabilities are asked for.
    """

    name: str
    logits: tuple[float, ...] | RandomLogits
    asked: Parameters = field(default_factory=Parameters)
    counts: Mapping[int, int] = field(default_factory=dict)
    first_history_index: int = 100
    num_choices: int = 1
    num_top_logprobs: int | None = None
    masked: tuple[int, ...] = ()


def _logs(*probabilities: float) -> tuple[float, ...]:
    """Logits of about these probabilities, few bits each and so exact in float32."""
    return tuple(round(math.log(probability) * 1024) / 1024 for probability in probabilities)


def _drawn(
    name: str,
    logits: tuple[float, ...] | RandomLogits,
    *,
    num_choices: int = 24,
    masked: tuple[int, ...] = (),
    **asked: object,
) -> Case:
    return Case(
        name,
        logits,
        Parameters(**{"seed": SEED, "temperature": 1.0, **asked}),  # type: ignore[arg-type]  # named by the callers
        num_choices=num_choices,
        masked=masked,
    )


FOUR = _logs(0.1, 0.4, 0.2, 0.3)
SIX = _logs(0.3, 0.05, 0.25, 0.1, 0.2, 0.1)
HUGE = 2.0**60  # next to it a double holds multiples of 256: sums depend on their order
LAST_BIT = 2.0**-52

GREEDY = (
    Case("greedy takes the highest and of equal ones the lower id", (1.0, 3.0, 3.0, 2.0)),
    Case("greedy passes over what is impossible", (-math.inf, -2.0, -math.inf, -1.5)),
    Case("greedy obeys logit_bias", (1.0, 3.0, 2.5), Parameters(logit_bias={1: -1.0, 2: -0.25})),
    Case("a bias does not revive what is impossible", (-math.inf, 0.0, -1.0), Parameters(logit_bias={0: 50.0})),
    Case("a presence penalty is taken off once", (2.0, 1.75, 1.0), Parameters(presence_penalty=0.5), {0: 3}),
    Case("a frequency penalty is taken off each time", (3.0, 1.75, 1.0), Parameters(frequency_penalty=0.5), {0: 3}),
    Case(
        "penalties add up",
        (5.0, 4.0, 3.75, 1.0),
        Parameters(presence_penalty=0.5, frequency_penalty=0.25),
        {0: 3, 1: 1},
    ),
    Case(
        "negative penalties favour",
        (2.0, 1.5, 1.25),
        Parameters(presence_penalty=-0.5, frequency_penalty=-0.125),
        {2: 3},
    ),
    Case(
        "the bias is added before a penalty is taken off",
        (129.0, 129.0),
        Parameters(logit_bias={0: HUGE, 1: HUGE}, presence_penalty=2.0),
        {0: 1},
    ),
    Case("a repetition penalty divides what is positive", (3.0, 2.0, 1.0), Parameters(repetition_penalty=2.0), {0: 1}),
    Case("a repetition penalty multiplies the rest", (-1.0, -1.5, -9.0), Parameters(repetition_penalty=2.0), {0: 1}),
    Case("a repetition penalty leaves 0 alone", (0.0, -0.25), Parameters(repetition_penalty=2.0), {0: 1}),
    Case("a repetition penalty counts once", (5.0, 2.0), Parameters(repetition_penalty=2.0), {0: 3}),
    Case("a repetition penalty below 1 favours", (1.0, 1.5, -8.0), Parameters(repetition_penalty=0.5), {0: 1, 2: 1}),
    Case(
        "the bias is added before a repetition penalty divides",
        (1.0, 2.0),
        Parameters(repetition_penalty=2.0, logit_bias={0: 2.0}),
        {0: 1},
    ),
    Case(
        "a bias decides whether a repetition penalty divides",
        (1.0, -1.5),
        Parameters(repetition_penalty=2.0, logit_bias={0: -2.0}),
        {0: 1},
    ),
    Case(
        "a repetition penalty divides before a penalty is taken off",
        (4.0, 1.25),
        Parameters(repetition_penalty=2.0, presence_penalty=1.0),
        {0: 1},
    ),
)

ENDS = (
    Case("greedy passes over what is masked", (1.0, 3.0, 2.0), masked=(1,)),
    Case("what is masked is out however likely it is", (500.0, 1.0, 2.0), masked=(0,)),
    Case("a bias does not revive what is masked", (1.0, 3.0, 2.0), Parameters(logit_bias={1: 50.0}), masked=(1, 2)),
    Case(
        "penalties do not revive what is masked",
        (1.0, 3.0, 2.0),
        Parameters(repetition_penalty=0.5, presence_penalty=-2.0),
        {1: 1},
        masked=(1,),
    ),
    _drawn("a draw without what is masked", FOUR, masked=(1,)),
    _drawn("what is masked is not among the top_k", SIX, top_k=2, masked=(0, 4)),
    _drawn("what is masked has no mass", SIX, top_p=0.7, masked=(0,)),
    _drawn("what is masked is not the likeliest of min_p", SIX, min_p=0.6, masked=(0, 2)),
    Case("log-probabilities of what is masked", FOUR, num_top_logprobs=2, masked=(1,)),
)

STEPS = (
    _drawn("a draw from all", FOUR),
    _drawn("a temperature above 1 flattens", FOUR, temperature=2.5),
    _drawn("a temperature below 1 sharpens", FOUR, temperature=0.5),
    _drawn("top_k", SIX, top_k=3),
    _drawn("top_k keeps the lower ids of equal ones", (0.0, 2.0, 1.0, 1.0, 1.0, 2.0), top_k=3, temperature=4.0),
    _drawn("top_k of more than there are", FOUR, top_k=40),
    _drawn("top_p", SIX, top_p=0.7),
    _drawn("top_p is reached exactly", (1.5, 1.5, 1.5, 1.5), top_p=0.5),
    _drawn("top_p keeps the lower ids of equal ones", (0.0, 1.0, 1.0, 1.0), top_p=0.5),
    _drawn("the least top_p keeps the best", SIX, top_p=1e-6, num_choices=4),
    _drawn("min_p", SIX, min_p=0.5),
    _drawn("a min_p of 1 keeps the equals of the best", (2.0, 1.5, 2.0, 2.0), min_p=1.0),
    _drawn("logit_bias in a draw", FOUR, logit_bias={0: 1.5, 1: -0.5, 3: -100.0}),
)

ORDER = (
    Case(
        "the bias is divided by the temperature",
        FOUR,
        Parameters(seed=SEED, temperature=0.5, logit_bias={0: 1.0, 2: -0.5}),
        num_choices=24,
    ),
    Case(
        "a penalty is divided by the temperature",
        FOUR,
        Parameters(seed=SEED, temperature=0.5, presence_penalty=0.5, frequency_penalty=0.25),
        {1: 2, 3: 1},
        num_choices=24,
    ),
    Case(
        "a repetition penalty comes before the temperature",
        SIX,
        Parameters(SEED, 2.0, 3, repetition_penalty=1.75),
        {0: 1, 4: 2},
        num_choices=24,
    ),
    Case(
        "a penalty decides who is among the top_k",
        FOUR,
        Parameters(seed=SEED, temperature=2.0, top_k=2, frequency_penalty=1.0),
        {1: 2},
        num_choices=24,
    ),
    _drawn("a bias decides who is among the top_k", FOUR, temperature=2.0, top_k=2, logit_bias={0: 2.0}),
    # Divided by 1.75 the two scores are equal, and the lower id is kept.
    _drawn("temperature before top_k", (1.9921875, 1.9921875), temperature=1.75, top_k=1, logit_bias={1: LAST_BIT}),
    _drawn("temperature before top_p", SIX, temperature=0.5, top_p=0.7),
    _drawn("temperature before min_p", SIX, temperature=2.0, min_p=0.6),
    # Of the three that top_k leaves the first two have 0.73 of the mass, of all only 0.55.
    _drawn("top_k before top_p", SIX, top_k=3, top_p=0.7),
    # Of all, three reach 0.7; of the three that min_p would leave, two do.
    _drawn("top_p before min_p", _logs(0.4, 0.2, 0.22, 0.1, 0.08), top_p=0.7, min_p=0.4),
    Case(
        "all steps at once",
        SIX,
        Parameters(SEED, 0.8, 4, 0.9, 0.25, 0.25, 0.125, {3: 0.75, 1: 1.0}, 1.25),
        {0: 2, 2: 1},
        num_choices=32,
        masked=(5,),
    ),
)

LARGE = (
    _drawn("a draw from 3,000", RandomLogits(3000, key=1, scale=8.0), num_choices=4),
    _drawn("top_p of 3,000", RandomLogits(3000, key=2, scale=8.0), top_p=0.8, num_choices=4),
    _drawn(
        "all steps of 3,000",
        RandomLogits(3000, key=3, scale=8.0, changed={7: 9.5, 2999: 9.0, 0: -math.inf}),
        temperature=0.7,
        top_k=500,
        top_p=0.95,
        min_p=0.01,
        logit_bias={5: 8.0, 2999: -2.0},
        num_choices=8,
    ),
    _drawn("top_k of a large vocabulary", RandomLogits(151_936, key=4, scale=16.0), top_k=40, num_choices=4),
    Case("greedy on a large vocabulary", RandomLogits(151_936, key=5, scale=16.0), num_top_logprobs=20),
)

DRAWS = (
    _drawn("the low half of the seed", FOUR, seed=1),
    _drawn("the high half of the seed", FOUR, seed=1 << 32),
    _drawn("the largest seed", FOUR, seed=2**64 - 1),
    Case("a history beyond 2^32", FOUR, Parameters(SEED, 1.0), first_history_index=2**32 - 4, num_choices=12),
    _drawn("far below the best", (0.0, -30.0, -39.0, -60.0, -1000.0), temperature=0.75),
)

LOGPROBS = (
    Case("the choice alone", FOUR, num_top_logprobs=0),
    Case("the likeliest, descending, equal ones by id", SIX, Parameters(SEED, 1.0), num_top_logprobs=6),
    Case("some of equal ones", (0.0, 1.0, 0.5, 0.5, 0.5), num_top_logprobs=3),
    Case("more than there are", FOUR, num_top_logprobs=20),
    Case("the impossible is left out", (-math.inf, 1.0, 0.0), num_top_logprobs=3),
    Case(
        "of the raw logits",
        SIX,
        Parameters(SEED, 0.5, 2, 0.9, 0.1, 1.0, 1.0, {1: 4.0, 0: -4.0}, 1.5),
        {2: 1},
        num_top_logprobs=3,
    ),
    Case("of large logits", (2.0**100, 2.0**100, -(2.0**100)), num_top_logprobs=3),
)


def cases() -> Iterable[Case]:
    return (*GREEDY, *ENDS, *STEPS, *ORDER, *LARGE, *DRAWS, *LOGPROBS)
