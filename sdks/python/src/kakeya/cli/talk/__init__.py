"""A talk with a model in a terminal, or through pipes: one session, from its opening to its end."""
