"""Workers that nobody can dial: their tunnels, and the local sockets behind which they seem to be."""
