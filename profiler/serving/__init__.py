"""Serving prediction: requests played against a server's scheduler on predicted step times."""
