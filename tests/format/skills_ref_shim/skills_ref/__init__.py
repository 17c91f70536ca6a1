"""skills_ref as its own tests see it, made of adk_skills_agent.format: put the folder above on PYTHONPATH."""
