"""The seams of verifier backends and retention policies, and the values that pass through them."""
