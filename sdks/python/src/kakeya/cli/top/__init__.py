"""`kakeya top`: what runs, on a terminal."""
