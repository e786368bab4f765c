"""Speculative decoding: who drafts for a session, how well, and how many drafts a step should have."""
