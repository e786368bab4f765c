"""The three services of the wire, in terms of sessions and operations."""
