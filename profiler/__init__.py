"""Traces, timing campaigns, cost-model fit and serving prediction."""
