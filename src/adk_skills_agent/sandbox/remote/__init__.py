"""Machines of other services as a sandbox."""
