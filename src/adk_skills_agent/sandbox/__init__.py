"""Run ONE command safely: request in, result out. Knows nothing of skills or of google-adk."""
