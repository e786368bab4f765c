"""Calls of tools in what a model says: four families of syntax, read as the text comes."""
