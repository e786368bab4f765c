"""What is printed and asked: tables, JSON, moments, durations, a chat's terminal."""
