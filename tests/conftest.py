"""Its place puts this folder on the import path, so that tests can say `from support.planting import ...`."""
