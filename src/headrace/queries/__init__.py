"""Standing queries: results of a stream of events, window by window, for as long as they stand."""
