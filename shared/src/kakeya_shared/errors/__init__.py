"""The one error tree of Kakeya's services, and its form on the wire."""
