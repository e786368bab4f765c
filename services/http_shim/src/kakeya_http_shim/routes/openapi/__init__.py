"""The OpenAPI document: what is served, made from the models that read the requests and write the answers."""
