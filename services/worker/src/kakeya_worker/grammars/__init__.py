"""Answers that are held to a grammar: which tokens may come next, by the library llguidance."""
