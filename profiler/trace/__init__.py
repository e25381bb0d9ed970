"""Routing traces: the file format, importers, splits, statistics and synthesis."""
