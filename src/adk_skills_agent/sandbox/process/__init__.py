"""Processes of a run: started, limited, watched, ended, whatever isolates them."""
