"""The router's state, all of it in Redis."""
