"""Bundled examples: model shapes that the demo and the tests use."""
