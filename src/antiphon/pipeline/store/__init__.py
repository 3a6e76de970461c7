"""How things lie on disk: trace files, the layout of an ingested trace, scratch arrays, output folders."""
