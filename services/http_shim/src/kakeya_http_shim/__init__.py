"""The HTTP shim: OpenAI's API in front of a Kakeya runtime, which it reaches as any client does."""
