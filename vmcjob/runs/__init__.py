"""Runs as users see them: state, queue, ancestry, use of resources, budget, news of an end."""
