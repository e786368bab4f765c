"""`kakeya doctor`: what is installed, what answers, what is wrong and the cure."""
