"""The workers as a router sees them: their calls, their leases, and which one takes a session."""
