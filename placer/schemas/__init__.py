"""JSON Schemas of everything that placer writes and prints as JSON."""
