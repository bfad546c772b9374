"""The decisions of the method: numbers in, records out. Standard library and `tasks.records` only."""
