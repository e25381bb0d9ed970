"""Timing campaigns: which calls to time, the subprocess that times them, and the machine they ran on."""
