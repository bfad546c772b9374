"""What the benchmarks of updates share: ranks that take as long as they are told, for real or on a virtual clock."""
