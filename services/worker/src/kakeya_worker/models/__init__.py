"""What a checkpoint says of its model, for every backend: files, architecture, angles. Without an array library."""
