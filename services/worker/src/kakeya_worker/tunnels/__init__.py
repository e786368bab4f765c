"""The way in for a worker that nobody can dial: it dials out, and keeps tunnels to routers."""
