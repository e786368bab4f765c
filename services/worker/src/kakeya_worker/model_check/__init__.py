"""How far a model, as it runs here, is from its own numbers in float32."""
