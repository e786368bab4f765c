"""Workers, their ledgers and the list of routers in Redis."""
