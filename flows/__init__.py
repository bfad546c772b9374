"""The flows: thin, and the only code that imports Prefect."""
