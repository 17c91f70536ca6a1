"""What an agent may do with skills: the owner's rules, and asking the user."""
