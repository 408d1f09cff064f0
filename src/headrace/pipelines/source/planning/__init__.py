"""Which offsets a batch takes: on the driver."""
