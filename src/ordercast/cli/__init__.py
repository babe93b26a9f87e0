"""The command line: one file a command. Its docstring is what `--help` says of the command."""
