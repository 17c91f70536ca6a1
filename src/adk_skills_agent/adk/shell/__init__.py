"""A shell for an agent: commands, files and background jobs in the session's workspace."""
