"""Sandboxes with namespaces: one description of their file system, two programs that make them."""
