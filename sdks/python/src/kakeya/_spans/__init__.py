"""The spans of the SDK, and OpenTelemetry where a program asks for it."""
