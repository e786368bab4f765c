"""Random schedules of several sessions, run on the real engine."""
