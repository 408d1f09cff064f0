"""Files by URI: local, HDFS and S3."""
