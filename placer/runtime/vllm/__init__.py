"""A plugin that makes an unmodified vLLM honour a placement per expert; README.md says how to switch it on."""
