"""What the workflows ask of GitHub and tell it.

Only the standard library is needed: nothing is installed where a token is.
"""
