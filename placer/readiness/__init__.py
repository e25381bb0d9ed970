"""Preflight: is this machine ready to start the server that a placement plans?"""
