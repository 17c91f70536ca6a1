"""Isolation levels of this machine: whether each works here, what it enforces, which one a run gets."""
