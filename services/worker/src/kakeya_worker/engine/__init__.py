"""The engine: integers plan here, arrays obey in a verifier backend."""
