"""Networks as others describe them: scans of fabrics, Slurm's files, what clouds tell of their hosts."""
