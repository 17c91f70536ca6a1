"""``adk-skills demo``: the whole job, then a hostile skill."""
