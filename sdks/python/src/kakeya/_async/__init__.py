"""The client for asyncio; the blocking one is generated from here."""
