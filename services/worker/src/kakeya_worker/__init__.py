"""The verifier worker: one model and one slab of bounded KV on one host."""
