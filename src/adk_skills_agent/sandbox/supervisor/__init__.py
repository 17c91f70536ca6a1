"""The program inside sandboxes that are not on this machine, and the host's side of it."""
