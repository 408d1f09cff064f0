"""Events in Protobuf."""
