"""The subcommands: how they are found, each of them, and what they say of an error."""
