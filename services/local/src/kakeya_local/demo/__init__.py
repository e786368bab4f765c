"""`kakeya demo`: long conversations, their KV checked byte by byte, and the report of it."""
