"""The bodies of requests: their fields and messages, each honoured or refused by name."""
