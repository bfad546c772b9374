"""DVC and fsspec: what the data set is, where its bytes are, and how they come here, verified."""
