"""Deployment: headrace.toml, the environment, secrets by reference."""

from headrace.settings.kafka import PRODUCER_SETTINGS
from headrace.settings.loading import (
    MASTERS,
    PROJECT_FILE,
    environment,
    find_project,
    load_settings,
    master_problem,
)
from headrace.settings.model import (
    ANY_ORIGIN,
    STATE_FOLDER,
    EmbeddedKafka,
    IngestSettings,
    KafkaSettings,
    LedgerSettings,
    Rate,
    RestartSettings,
    S3Settings,
    SchemaRegistrySettings,
    Secret,
    SecretUrl,
    Settings,
    SparkSettings,
)

__all__ = [
    "ANY_ORIGIN",
    "MASTERS",
    "PRODUCER_SETTINGS",
    "PROJECT_FILE",
    "STATE_FOLDER",
    "EmbeddedKafka",
    "IngestSettings",
    "KafkaSettings",
    "LedgerSettings",
    "Rate",
    "RestartSettings",
    "S3Settings",
    "SchemaRegistrySettings",
    "Secret",
    "SecretUrl",
    "Settings",
    "SparkSettings",
    "environment",
    "find_project",
    "load_settings",
    "master_problem",
]
