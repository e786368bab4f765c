"""`kakeya up`: a stack in the foreground, and what is said about it."""
