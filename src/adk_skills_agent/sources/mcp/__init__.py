"""Skills over the Model Context Protocol: other servers' skills read, ours offered."""
