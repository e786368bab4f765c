"""What runs now, as viewers see it."""
