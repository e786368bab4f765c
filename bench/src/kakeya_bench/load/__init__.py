"""`kakeya bench load`: how many sessions a runtime carries at once before its users have to wait."""
