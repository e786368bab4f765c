"""gRPC as every service speaks it: server, boundary, TLS, proxies, traces."""
