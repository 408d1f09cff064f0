"""The only place that opens a broker connection; and the embedded cluster."""
