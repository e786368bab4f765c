"""The `kakeya` command; the parts that are installed add subcommands by entry point."""
