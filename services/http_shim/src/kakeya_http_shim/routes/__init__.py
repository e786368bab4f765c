"""The routes, and the way of a request that generates: admitted, watched, answered."""
