"""`kakeya bench session`: proves on any hardware that memory and the cost of a turn stay flat."""
