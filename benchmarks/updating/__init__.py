"""What the benchmarks of update modes share: ranks that take as long as they are told, for real and on a virtual clock."""
