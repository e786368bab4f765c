"""What any process takes from its host: threads and memory."""
