"""One running Append or Generate: who may use a session now, and what is written through when that ends."""
