"""A configuration: under what a model is measured."""

from dataclasses import dataclass

from kakeya_shared import plugins
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import Retention, RetentionPolicy, SessionOptions
from kakeya_worker.quality.options import POLICIES

BASE, COMPARED = "float32", "int8"  # modes of the weights that are compared


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
