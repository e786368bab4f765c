"""The snapshot stores that come with the worker."""
