"""Measuring whether skills are found, followed, and worth their tokens."""
