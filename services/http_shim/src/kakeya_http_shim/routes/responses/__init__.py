"""What is served below /v1/responses."""
