"""What is kept of responses and conversations, and how a stream is told of it."""
