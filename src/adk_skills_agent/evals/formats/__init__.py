"""The kinds of files eval cases come from; one module each."""
