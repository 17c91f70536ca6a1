"""The program that is process 1 of a sandbox, and the host's side of it."""
