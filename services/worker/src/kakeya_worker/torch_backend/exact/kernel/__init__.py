"""The C++ kernel of exact mode: the same bits as the eager form, faster.

`build.py` compiles the sources here into one library beside them, `library.py` loads it and chooses its variant.
"""
