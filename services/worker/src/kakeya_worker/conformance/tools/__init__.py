"""Checkpoints, a driver of verifiers, the law in float64 and its measure, for the cases."""
