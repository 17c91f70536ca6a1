"""One file per tool a model can call."""
