"""The command line. The module of a command has `main(arguments)`, which returns the exit status.

What keeps a command from its work is raised as a `GarError`, whose text `gar.cli.main` prints. The statuses
are those of `gar.cli.outcomes`.
"""
