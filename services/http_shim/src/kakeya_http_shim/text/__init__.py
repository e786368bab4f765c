"""Tokens into text as they come: whole characters, stop texts, thoughts apart."""
