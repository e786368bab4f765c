"""supervisord, which keeps the processes of a stack running, and why one ended."""
