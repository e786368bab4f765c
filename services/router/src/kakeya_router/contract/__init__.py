"""What a request must be like, its errors, and how the messages of the two contracts translate."""
