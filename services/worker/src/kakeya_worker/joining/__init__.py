"""How this worker reaches routers, joins them and stays registered."""
