"""``sandbox="ray"``: scripts run in the local sandboxes of a Ray cluster's nodes."""
