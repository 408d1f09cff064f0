"""The Spark source: plans offset ranges, reads with librdkafka, decodes to Arrow."""
