"""What chat templates write behind an answer, told without rendering what was said before it."""
