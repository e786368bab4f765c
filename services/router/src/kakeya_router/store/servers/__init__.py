"""Connections to the servers that hold all state: one, those that Sentinel names, or the nodes of a Cluster."""
