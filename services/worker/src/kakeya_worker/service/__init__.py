"""VerifierService: what a router asks of this worker, checked and put into the engine's words."""
