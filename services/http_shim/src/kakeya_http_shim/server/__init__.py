"""The listening server: connections, their limits, TLS."""
