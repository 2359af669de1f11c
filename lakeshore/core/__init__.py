"""The pure centre of Lakeshore: rules, messages and actors, without I/O."""
