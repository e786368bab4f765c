"""`kakeya bench compare`: one conversation, turn by turn, on this runtime and on servers that know no sessions."""
