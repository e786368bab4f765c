"""Keys, join tokens and quotas in Redis."""
