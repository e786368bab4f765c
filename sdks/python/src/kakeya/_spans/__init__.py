"""The spans of the SDK, and OpenTelemetry where somebody asks for it."""
