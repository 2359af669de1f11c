"""How values that msgpack has no type for are written and read; `values` is the way in."""
