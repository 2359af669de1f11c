"""How messages get from one side to the other."""
