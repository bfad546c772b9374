"""What the benchmarks of fitting a batch to a device share: models, a device with a hard limit, and contenders."""
