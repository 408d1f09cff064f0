"""The lifecycle of long-running services: run (not of pipelines), status, metrics, restarts."""
