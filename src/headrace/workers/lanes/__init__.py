"""Records of one partition, through the tasks of its subpartitions: the lanes."""
