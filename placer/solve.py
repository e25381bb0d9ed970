"""The joint decision: which level of server settings, and which experts are hot at it."""
