"""What the benchmarks of staging share: a store behind a slow link, the project's side, and the peers' side."""
