"""Running eval cases: which trials there are, one trial, many at a time, and the file that keeps their results."""
