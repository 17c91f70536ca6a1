"""What happened with skills, for the owner: events, the audit log, spans and metrics."""
