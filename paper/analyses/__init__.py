"""Analyses of the paper: `python -m paper.analyses.NAME --help`."""
