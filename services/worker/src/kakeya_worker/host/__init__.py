"""What any process takes from its host: threads, memory, files that are replaced as a whole."""
