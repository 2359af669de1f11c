"""Where rows are kept: in memory, or in one SQLite file."""
