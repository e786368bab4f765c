"""The suite's tests: what every backend must keep."""
