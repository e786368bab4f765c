"""Ollama's API: requests into those of a chat or a completion, and answers in its form."""
