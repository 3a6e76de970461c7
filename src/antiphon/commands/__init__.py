"""The commands of `antiphon`, one file each: `configure(parser)` and `run(args) -> exit code`."""
