"""Capability probes: whether a policy still can do what it could before it was trained."""
