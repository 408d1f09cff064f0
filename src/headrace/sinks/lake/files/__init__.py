"""The Parquet files of a table: how rows become files, and where these lie."""
