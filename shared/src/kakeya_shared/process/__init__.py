"""A service as a process: its life and its logs, its processors and its disk."""
