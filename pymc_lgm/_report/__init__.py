"""What `lgm.report` is made of: numbers, thresholds, verdicts, pictures, pages."""
