"""What Kakeya's services share; nothing is here that only one of them needs."""
