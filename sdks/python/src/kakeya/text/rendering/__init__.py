"""Chat templates as programs: run within bounds, and with a note of which letters came from texts."""
