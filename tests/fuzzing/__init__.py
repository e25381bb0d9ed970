"""Fuzzing of every reader: damaged and hostile bytes end in a result or in one line that says what is wrong."""
