"""Bodies in processes of their own: each child is a small worker with one slot, minded by the real one."""
