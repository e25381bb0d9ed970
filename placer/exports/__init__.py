"""Exports: a placement turned into exactly what a serving runtime consumes."""
