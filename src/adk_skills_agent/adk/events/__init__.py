"""Events, the audit log, spans and metrics: what skills did, for the owner."""
