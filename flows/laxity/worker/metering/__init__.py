"""How many bytes a training reads and writes."""
