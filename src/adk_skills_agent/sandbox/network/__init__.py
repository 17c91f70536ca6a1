"""The network of a run: allow-lists, the checking proxy, network namespaces."""
