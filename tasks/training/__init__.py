"""Everything that touches torch: from a job file to a result file, in processes of its own."""
