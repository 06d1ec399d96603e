"""The parts of `lgm.report`: numbers, thresholds, verdicts, pictures, pages."""
