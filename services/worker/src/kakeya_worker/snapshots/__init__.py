"""Snapshots between the engine and the store, or another worker: files, the store seam, and what is removed from it."""
