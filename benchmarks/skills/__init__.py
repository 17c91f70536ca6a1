"""The eight skills of the bench as an agent for adk web and adk eval."""
