"""Problem sets to evaluate on, read from the Hub or from a local file with the published columns. None is vendored."""
