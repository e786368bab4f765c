"""When a session is written to the snapshot store, what is kept there, and what can be restored from it."""
