"""The steps of adaptive retraining as plain functions, and everything that they are made of."""
