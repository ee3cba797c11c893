"""The HTTP face of the service, and what people and workers may ask of it."""
