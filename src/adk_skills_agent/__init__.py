"""The runtime for Agent Skills on Google's Agent Development Kit."""
