"""The data pipeline on Spark: ingest, check, measure, sweep, watch. The only package that imports pyspark."""
