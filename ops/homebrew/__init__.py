"""Kakeya by Homebrew: a lock of what it needs on a Mac, and the formula that is made of it."""
