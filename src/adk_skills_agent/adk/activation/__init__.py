"""Which skills are active in a session, and what the model sees of them."""
