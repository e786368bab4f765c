"""Who holds which lane, what is in it, and which operation runs on it."""
