"""The `process` runner put together: what it is asked to be, and both of its ends."""
