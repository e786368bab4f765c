"""Anthropic's Messages: requests into those of a chat, and answers in their form."""
