"""Lanes as values that go anywhere: taken, restored, and the memory for them."""
