"""Settings as flags and variables, and how addresses and URLs are spelled in them."""
