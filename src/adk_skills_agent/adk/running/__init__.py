"""Running a skill's script: our own sandbox, google-adk's executors, google-adk's environments."""
