"""The two processes of a daemon: a small parent that no body can stop, and the child that works."""
