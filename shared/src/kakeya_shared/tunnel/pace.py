"""How often both ends of a tunnel let the other hear of them, and when they take it for dead."""

BEAT_SECONDS = 0.5
SILENCE_SECONDS = 3.0
