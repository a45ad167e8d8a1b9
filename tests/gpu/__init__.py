"""A check of a GPU: what works on it, and how fast. Tiny, the whole check runs on a CPU."""
