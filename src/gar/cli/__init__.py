"""The command line. Each command's module has `main(arguments)`, which returns the exit status.

A command that cannot do its work raises a `GarError`, and `gar.cli.main` prints it. `gar.cli.outcomes` lists the
exit statuses.
"""
