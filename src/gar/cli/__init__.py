"""The command line. The module of a command has `main(arguments)`, which returns the exit status.

A command that cannot do its work raises a `GarError`, whose text `gar.cli.main` prints. `gar.cli.outcomes` lists the
exit statuses.
"""
