"""Answers on the terminal, one file per command that has something to say."""
