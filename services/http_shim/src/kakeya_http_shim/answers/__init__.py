"""How answers are written in OpenAI's two forms, whole or streamed."""
