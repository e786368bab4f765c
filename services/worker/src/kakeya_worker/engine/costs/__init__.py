"""What steps cost: measured at start, and by those that ran."""
