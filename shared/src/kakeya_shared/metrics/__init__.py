"""What a service counts and measures, and how others read it."""
