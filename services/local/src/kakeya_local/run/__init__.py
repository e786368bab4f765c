"""`kakeya run`: a stack for one talk with one model."""
