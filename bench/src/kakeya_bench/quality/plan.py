"""What is measured: the settings, made whole by what is known of the model."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kakeya_bench.quality.settings import POLICIES, CannotMeasure, QualitySettings
from kakeya_shared import plugins
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import Retention, RetentionPolicy, SessionOptions
from kakeya_worker.engine.seams.verifier import ModelFacts

BASE, COMPARED = "float32", "int8"  # modes of the weights that are compared
ANSWER_TOKENS = 32
"""The most tokens of an answer; a value stands within the first dozen of one that holds it at all."""
ENOUGH = 16  # so many make a share that is judged
BEYOND = 2.1  # times S + W: where whatever is forgotten is forgotten for good
MOST_LANES = 24
_SLAB_BYTES = 1 << 30
_DEFAULT_CAPACITY = 1024  # S + W of the largest window: minutes on a small model; larger ones by --windows
_DEFAULT_WINDOWS = (128, 256)  # below the largest
_QUICK_WINDOWS = (256,)
_SAMPLES_A_TEXT = 6
_COMPARED_A_SAMPLE = 17  # questions; over 300 by default
_FURTHEST_TEXT = 4  # times S + W: so far is perplexity measured in a session that keeps less than the largest
SMALLEST_CHUNK = 32
_CHUNK_MULTIPLE = 16
_NEAREST = 16  # tokens; hardly a question is shorter
_PER_OCTAVE = 2  # distances
_SPARE = 1.2  # a distance of the scale keeps off the others by this factor, so that fillers fit between them
_LEFT = 48  # tokens; a telling is shorter, so that so far beyond W none is in sight


class Kind(StrEnum):
    """What dialogues are about."""

    RECALL = "recall"
    MULTI_TURN = "multi-turn"
    SYSTEM = "system fact"
    PINNED = "pinned fact"
    COMPARED = "compared recall"


@dataclass(frozen=True)
class Configuration:
    """One way to keep a session.

    Attributes:
        weights: their mode.
        policy: of retention.
        sink: S, tokens.
        window: W, tokens.
    """

    weights: str
    policy: str
    sink: int
    window: int

    @property
    def capacity(self) -> int:
        """S + W."""
        return self.sink + self.window

    def pinned(self, num_tokens: int) -> "Configuration":
        """The same memory with at least so many sinks: the window gives what they take."""
        sink = max(self.sink, num_tokens)
        return Configuration(self.weights, self.policy, sink, self.capacity - sink)

    def retention(self, geometry: LaneGeometry) -> Retention:
        """What a session in a lane of at least this capacity keeps.

        Raises:
            InvalidField: the policy cannot do that.
            PluginError: there is no such policy.
        """
        policy: RetentionPolicy = plugins.load(POLICIES, self.policy)
        return policy(SessionOptions(sink=self.sink, window=self.window), geometry)

    def __str__(self) -> str:
        return f"{self.weights} {self.policy} S={self.sink} W={self.window}"


@dataclass(frozen=True)
class Plan:
    """Everything that is measured.

    Attributes:
        windows: W of a session with the most sinks, ascending; with fewer, the window has what they leave.
        middle_window: at which everything is measured; what is costly is at no other unless all is asked for.
        distances: of questions, ascending.
        enough: so many questions make a share that is judged.
        num_compared: questions in sight that modes of the weights are compared by.
        num_texts, text_length: of perplexity; tokens.
        reference_length: tokens that full attention sees.
    """

    settings: QualitySettings
    most_sinks: int
    windows: tuple[int, ...]
    middle_window: int
    distances: tuple[int, ...]
    enough: int
    num_compared: int
    num_texts: int
    text_length: int
    reference_length: int

    def is_whole(self, weights: str) -> bool:
        """Whether a mode is measured in every configuration; the others only where they are compared."""
        return self.settings.full or weights == self.settings.weights[0]

    def is_compared(self, configuration: Configuration) -> bool:
        """Whether int8 is compared with float32 there."""
        has_both = {BASE, COMPARED} <= set(self.settings.weights) and configuration.weights in (BASE, COMPARED)
        return has_both and (configuration.sink, configuration.window) == (self.most_sinks, self.middle_window)

    def configurations(self, weights: str) -> Iterator[Configuration]:
        """Those of a mode of the weights; the same S + W for all sinks of a window."""
        is_whole = self.is_whole(weights)
        for policy in self.settings.policies:
            for window in self.windows if is_whole else (self.middle_window,):
                for sink in self.settings.sinks if is_whole else (self.most_sinks,):
                    yield Configuration(weights, policy, sink, self.most_sinks + window - sink)

    def kinds(self, configuration: Configuration) -> list[Kind]:
        """The dialogues of a configuration. Perplexity is measured in all, with no dialogues in some."""
        kinds = []
        has_most = configuration.sink == self.most_sinks
        has_everything = self.settings.full or configuration.capacity == self.most_sinks + self.middle_window
        if self.is_whole(configuration.weights):
            if has_most or has_everything:
                kinds += [Kind.RECALL, Kind.MULTI_TURN]
            if has_most and has_everything:
                kinds += [Kind.SYSTEM, Kind.PINNED]
        return [*kinds, Kind.COMPARED] if self.is_compared(configuration) else kinds

    def num_tasks(self, weights: str) -> int:
        """Dialogues by configuration, perplexity in all of these, full attention."""
        return sum(len(self.kinds(each)) for each in self.configurations(weights)) + 1 + self.is_whole(weights)

    def num_positions(self, configuration: Configuration) -> int:
        """Of each text, for perplexity."""
        if not self.is_whole(configuration.weights):
            return 2 * configuration.capacity
        return self.text_length if self.settings.full else _FURTHEST_TEXT * configuration.capacity

    def furthest(self, capacity: int) -> int:
        """The last distance that is asked of a capacity: of all that were given, else the first beyond twice of it."""
        if self.settings.distances:
            return self.distances[-1]
        return next((distance for distance in self.distances if distance > 2 * capacity), self.distances[-1])

    def geometry(self, longest_probe: int) -> LaneGeometry:
        """One for all that forget, not for full attention, whose longer lanes would leave the others fewer.

        Narrower sessions divide it, and a chunk holds what is taken back.
        """
        chunk = max(SMALLEST_CHUNK, -(-longest_probe // _CHUNK_MULTIPLE) * _CHUNK_MULTIPLE)
        return LaneGeometry(self.most_sinks, self.windows[-1], chunk)


def make(settings: QualitySettings, facts: ModelFacts) -> Plan:
    """Chooses what the settings leave open. Raises CannotMeasure: the model has not that many positions."""
    most_sinks = max(settings.sinks)
    windows = tuple(sorted(set(settings.windows or _default_windows(settings, facts.max_positions - most_sinks))))
    capacity = most_sinks + windows[-1]
    if windows[0] < 1 or capacity > facts.max_positions:
        raise CannotMeasure(
            f"sinks {most_sinks} + window {windows[-1]} do not fit {facts.max_positions} positions, "
            f"{facts.max_positions_reason}; lower --windows"
        )
    text_length = int(BEYOND * capacity) + 1
    return Plan(
        settings,
        most_sinks,
        windows,
        middle_window=middle(windows),
        distances=tuple(sorted(settings.distances or default_distances(capacity, windows))),
        enough=min(ENOUGH, settings.num_samples),
        num_compared=_COMPARED_A_SAMPLE * settings.num_samples,
        num_texts=-(-settings.num_samples // _SAMPLES_A_TEXT),
        text_length=text_length,
        reference_length=min(facts.max_positions, text_length - 1),
    )


def middle(windows: Sequence[int]) -> int:
    """Of windows, ascending."""
    return windows[(len(windows) - 1) // 2]


def num_lanes(facts: ModelFacts, geometry: LaneGeometry) -> int:
    """As many as are useful and fit the memory for KV."""
    return max(1, min(MOST_LANES, _SLAB_BYTES // (geometry.num_slots * facts.kv_bytes_per_token)))


def default_distances(capacity: int, windows: Iterable[int]) -> set[int]:
    """Even on a logarithmic scale, to BEYOND times the capacity, that one included; and around each window's edge.

    That is the last distance in sight, W - ANSWER_TOKENS, where it is one, and one at which all of it is gone.
    """
    furthest = math.floor(BEYOND * capacity)
    edges = {edge for window in windows for edge in (window - ANSWER_TOKENS, window + _LEFT)}
    fixed = {furthest, *(edge for edge in edges if _NEAREST <= edge < furthest)}
    num_steps = max(0, math.ceil(_PER_OCTAVE * math.log2(furthest / _NEAREST)))
    spaced = (round(_NEAREST * 2 ** (step / _PER_OCTAVE)) for step in range(num_steps))
    return fixed | {each for each in spaced if all(not 1 / _SPARE < each / other < _SPARE for other in fixed)}


def _default_windows(settings: QualitySettings, most: int) -> list[int]:
    largest = min(most, _DEFAULT_CAPACITY - max(settings.sinks))
    wanted = _QUICK_WINDOWS if settings.quick else (*_DEFAULT_WINDOWS, largest)
    return [window for window in wanted if window <= largest] or [largest]
