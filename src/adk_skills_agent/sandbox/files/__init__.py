"""Files of a run: into its workspace, out of it, kept for the session, removed."""
