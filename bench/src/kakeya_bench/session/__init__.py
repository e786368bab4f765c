"""`kakeya bench session`: proves on anybody's hardware that memory and the cost of a turn stay flat."""
