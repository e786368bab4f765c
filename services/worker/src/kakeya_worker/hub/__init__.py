"""Models of the Hugging Face Hub on this host: pulled before they are needed, listed, checked."""
