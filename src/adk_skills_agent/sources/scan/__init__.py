"""The scan of a skill before it is installed: what attacks on agents look like."""
