"""Sessions, their operations and the queue in Redis."""
