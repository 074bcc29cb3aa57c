"""The laboratory: workloads, runs over time, comparisons, baselines, benchmarks and pictures."""
