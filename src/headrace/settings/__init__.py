"""Deployment: headrace.toml, the environment, secrets by reference."""

from headrace.settings.loading import PROJECT_FILE, environment, find_project, load_settings
from headrace.settings.model import (
    STATE_FOLDER,
    EmbeddedKafka,
    IngestSettings,
    KafkaSettings,
    Rate,
    RestartSettings,
    Secret,
    SecretUrl,
    Settings,
    SparkSettings,
)

__all__ = [
    "PROJECT_FILE",
    "STATE_FOLDER",
    "EmbeddedKafka",
    "IngestSettings",
    "KafkaSettings",
    "Rate",
    "RestartSettings",
    "Secret",
    "SecretUrl",
    "Settings",
    "SparkSettings",
    "environment",
    "find_project",
    "load_settings",
]
