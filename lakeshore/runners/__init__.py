"""How a worker runs bodies."""
