"""Grammars that hold calls to their tools' schemas: of whole answers, or of calls within free text."""
