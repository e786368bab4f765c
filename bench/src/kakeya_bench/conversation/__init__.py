"""What is said in a bench, to which runtime, and what is known of it."""
