"""A local stack: planned, started, watched and stopped."""
