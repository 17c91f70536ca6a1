"""The kernel's own confinement: Landlock rules and system call filters, as data."""
