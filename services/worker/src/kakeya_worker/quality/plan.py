"""What is measured: the options, made whole by what is known of the model."""

from collections.abc import Iterator
from dataclasses import dataclass

from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import ModelFacts
from kakeya_worker.quality.configuration import BASE, COMPARED, Configuration
from kakeya_worker.quality.distances import BEYOND, default_distances
from kakeya_worker.quality.failure import CannotMeasure
from kakeya_worker.quality.options import Options
from kakeya_worker.quality.script import ANSWER_TOKENS
from kakeya_worker.quality.share import ENOUGH

DEFAULT_CAPACITY = 1024  # S + W of the largest window: minutes on a small model; larger ones by --windows
DEFAULT_WINDOWS = (128, 256)  # below the largest
QUICK_WINDOWS = (256,)
MOST_LANES = 24
SLAB_BYTES = 1 << 30
SAMPLES_A_TEXT = 6
COMPARED_A_SAMPLE = 17  # questions; over 300 by default
FURTHEST_TEXT = 4  # times S + W: so far is perplexity measured in a session that keeps less than the largest
_CHUNK_MULTIPLE = 16


@dataclass(frozen=True)
class Plan:
    """Everything that is measured.

    Attributes:
        windows: W of a session with the most sinks, ascending; with fewer, the window has what they leave.
        distances: of questions, ascending.
        num_texts, text_length: of perplexity; tokens.
        reference_length: tokens that full attention sees.
    """

    options: Options
    windows: tuple[int, ...]
    distances: tuple[int, ...]
    num_texts: int
    text_length: int
    reference_length: int

    @property
    def most_sinks(self) -> int:
        return max(self.options.sinks)

    @property
    def largest_capacity(self) -> int:
        """S + W of the largest window."""
        return self.most_sinks + self.windows[-1]

    @property
    def middle_window(self) -> int:
        """At which everything is measured; what is costly is measured at no other unless all is asked for."""
        return self.windows[(len(self.windows) - 1) // 2]

    @property
    def enough(self) -> int:
        """So many questions make a share that is judged."""
        return min(ENOUGH, self.options.num_samples)

    @property
    def num_compared(self) -> int:
        """Questions in sight that modes of the weights are compared by."""
        return COMPARED_A_SAMPLE * self.options.num_samples

    @property
    def compared_distances(self) -> tuple[int, ...]:
        """Those in sight in the middle window."""
        return tuple(distance for distance in self.distances if distance + ANSWER_TOKENS <= self.middle_window)

    def is_whole(self, weights: str) -> bool:
        """Whether a mode is measured in every configuration; the others only where they are compared."""
        return self.options.is_full or weights == self.options.weights[0]

    def is_compared(self, configuration: Configuration) -> bool:
        """Whether int8 is compared with float32 there."""
        has_both = {BASE, COMPARED} <= set(self.options.weights) and configuration.weights in (BASE, COMPARED)
        return has_both and (configuration.sink, configuration.window) == (self.most_sinks, self.middle_window)

    def has_dialogues(self, configuration: Configuration) -> bool:
        """Whether recall is measured there, and not perplexity alone."""
        has_most = configuration.sink == self.most_sinks
        return self.is_whole(configuration.weights) and (has_most or self._has_everything(configuration))

    def has_system_facts(self, configuration: Configuration) -> bool:
        """Whether facts in the system message are: with the most sinks, pinned and not."""
        has_most = configuration.sink == self.most_sinks
        return self.is_whole(configuration.weights) and has_most and self._has_everything(configuration)

    def num_positions(self, configuration: Configuration) -> int:
        """Of each text, for perplexity."""
        if not self.is_whole(configuration.weights):
            return 2 * configuration.capacity
        return self.text_length if self.options.is_full else FURTHEST_TEXT * configuration.capacity

    def _has_everything(self, configuration: Configuration) -> bool:
        return self.options.is_full or configuration.capacity == self.most_sinks + self.middle_window

    def configurations(self, weights: str) -> Iterator[Configuration]:
        """Those of a mode of the weights; the same S + W for all sinks of a window."""
        for policy in self.options.policies:
            for window in self.windows if self.is_whole(weights) else (self.middle_window,):
                for sink in self.options.sinks if self.is_whole(weights) else (self.most_sinks,):
                    yield Configuration(weights, policy, sink, self.most_sinks + window - sink)

    def distances_of(self, capacity: int) -> tuple[int, ...]:
        """Those that are asked of a capacity: all that were given, else up to the first beyond twice of it."""
        if self.options.distances:
            return self.distances
        beyond = next((distance for distance in self.distances if distance > 2 * capacity), self.distances[-1])
        return tuple(distance for distance in self.distances if distance <= beyond)

    def geometry(self, longest_probe: int) -> LaneGeometry:
        """One for all that forget: narrower sessions divide it, and a chunk holds what is taken back."""
        chunk = -(-max(longest_probe, 2 * _CHUNK_MULTIPLE) // _CHUNK_MULTIPLE) * _CHUNK_MULTIPLE
        return LaneGeometry(self.most_sinks, self.windows[-1], chunk)

    @property
    def reference_geometry(self) -> LaneGeometry:
        """That of full attention, whose longer lanes would leave the others fewer."""
        return LaneGeometry(0, self.reference_length, 2 * _CHUNK_MULTIPLE)


def make(options: Options, facts: ModelFacts) -> Plan:
    """Chooses what the options leave open. Raises CannotMeasure: the model has not that many positions."""
    most_sinks = max(options.sinks)
    windows = tuple(sorted(set(options.windows or _default_windows(options, facts.max_positions - most_sinks))))
    capacity = most_sinks + windows[-1]
    if windows[0] < 1 or capacity > facts.max_positions:
        raise CannotMeasure(
            f"sinks {most_sinks} + window {windows[-1]} do not fit {facts.max_positions} positions, "
            f"{facts.max_positions_reason}; lower --windows"
        )
    text_length = int(BEYOND * capacity) + 1
    return Plan(
        options,
        windows,
        distances=tuple(sorted(set(options.distances or default_distances(capacity, windows)))),
        num_texts=-(-options.num_samples // SAMPLES_A_TEXT),
        text_length=text_length,
        reference_length=min(facts.max_positions, text_length - 1),
    )


def num_lanes(facts: ModelFacts, geometry: LaneGeometry) -> int:
    """As many as are useful and fit the memory for KV."""
    return max(1, min(MOST_LANES, SLAB_BYTES // (geometry.num_slots * facts.kv_bytes_per_token)))


def _default_windows(options: Options, most: int) -> list[int]:
    largest = min(most, DEFAULT_CAPACITY - max(options.sinks))
    wanted = QUICK_WINDOWS if options.is_quick else (*DEFAULT_WINDOWS, largest)
    return [window for window in wanted if window <= largest] or [largest]
