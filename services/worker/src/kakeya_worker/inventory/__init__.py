"""What lies on this host: models with what they would take here, and what workers keep of them."""
