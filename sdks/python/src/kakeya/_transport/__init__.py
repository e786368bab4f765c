"""The wire of both clients: channels, TLS, proxies, keys, requests, retries, and errors as they come over it."""
