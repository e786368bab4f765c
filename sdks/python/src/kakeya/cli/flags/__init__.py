"""What a command is told by flags and variables, and what those stand for."""
