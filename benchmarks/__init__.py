"""Measured claims: one script a claim, each with its peer in the same run."""
