"""Cold paths of placer's plugin for vLLM: what runs cold experts there."""

COLD_PATHS = {"RAWINT4": "kt", "torch": "torch"}
"""The plugin's cold path for each CPU method that it has."""
