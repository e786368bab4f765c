"""Which live session a conversation that is sent whole goes on in."""
