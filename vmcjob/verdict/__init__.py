"""The verdict on a finished run: statistics, state and training."""
