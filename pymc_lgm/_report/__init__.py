"""What `pymc_lgm.report` is made of: numbers, thresholds, verdicts, pictures, pages."""
