"""When turns of a level may begin, and which of them count."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Period:
    """A warm-up, and the measured period after it. Moments are those of time.perf_counter.

    Attributes:
        start: of the level.
    """

    start: float
    warm_up_seconds: float
    duration_seconds: float

    @property
    def measured_from(self) -> float:
        """Turns that begin from here on count."""
        return self.start + self.warm_up_seconds

    @property
    def end(self) -> float:
        """No turn begins from here on."""
        return self.measured_from + self.duration_seconds

    def measured_seconds(self, until: float) -> float:
        """How much of what was measured had passed at a moment; 0 in the warm-up."""
        return max(0.0, until - self.measured_from)
