"""Names that users give their folders, and that mean something in some syntax on the way."""

AWKWARD_NAMES = (
    "with blanks",
    "a # comment",
    "a ; comment",
    "100% %(here)s %%",
    'it\'s "quoted"',
    "[red]:snake: $HOME `x` \\n",
    "-x--bind",
    "über 模型 ☃",
    "two\nlines",
    "in latin \udce9",
)
