"""A service as a process: its life and its logs, its processors, its disk and its files."""
