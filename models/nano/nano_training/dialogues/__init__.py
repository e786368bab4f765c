"""Everything that kakeya-nano was ever told: conversations drawn from grammars, one file a kind of turn."""
