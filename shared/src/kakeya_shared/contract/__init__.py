"""What the contracts state and both ends compute alike: bounds, labels, digests."""
