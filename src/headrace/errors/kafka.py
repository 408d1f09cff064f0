"""A Kafka cluster or its schema registry does not respond, or rejects a request."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors.base import FactsError


# A running pipeline waits for the broker, and for the registry below, without using up a restart:
# only an operator could do anything else.
@dataclass(eq=False)
class BrokerUnreachableError(FactsError):
    """The broker does not respond."""

    bootstrap_servers: str
    reason: str

    @property
    def remedy(self) -> str:
        return (
            "Start it (`headrace up` for the embedded one), or correct [kafka] or "
            "[sites.NAME.kafka] in headrace.toml."
        )


@dataclass(eq=False)
class RegistryUnreachableError(FactsError):
    """The schema registry does not respond."""

    url: str
    reason: str

    @property
    def remedy(self) -> str:
        return "Start it, or correct [schema_registry] in headrace.toml."


@dataclass(eq=False)
class SchemaMismatchError(FactsError):
    """The newest schema of a subject can't hold all events of the event class."""

    url: str
    subject: str
    reason: str

    @property
    def remedy(self) -> str:
        return "Register a version that has the fields of the class, or correct the class."


@dataclass(eq=False)
class SchemaRejectedError(FactsError):
    """The schema registry rejects the schema of an event class."""

    url: str
    subject: str
    reason: str

    @property
    def remedy(self) -> str:
        return "Make new fields optional (`| None`), or relax the subject's rules of compatibility."


# This and the next are never retried: the cluster would reject the request in the same way, and
# brokers slow clients down that keep failing to log in.
@dataclass(eq=False)
class AuthenticationError(FactsError):
    """The cluster rejects the login."""

    bootstrap_servers: str
    principal: str
    reason: str

    @property
    def remedy(self) -> str:
        return "Correct the user, the secret or the mechanism under [kafka] in headrace.toml."


@dataclass(eq=False)
class AuthorizationError(FactsError):
    """The cluster does not let this user do what is needed.

    ``operation`` as ACLs name it (READ, WRITE, CREATE, DESCRIBE, ...), ``resource`` with its kind
    (``topic orders``, ``group headrace.orders``).
    """

    operation: str
    resource: str
    principal: str

    @property
    def remedy(self) -> str:
        return f"Add an ACL: allow {self.operation} on {self.resource} to {self.principal}."


@dataclass(eq=False)
class TopicChangeError(FactsError):
    """The live topic can't be changed into the declared one."""

    topic: str
    reason: str


@dataclass(eq=False)
class RecordsUnreadableError(FactsError):
    """Records can't be read."""

    partition: str
    offset: int
    reason: str


@dataclass(eq=False)
class EventsNotDeliveredError(FactsError):
    """Kafka did not acknowledge events."""

    topic: str
    events: int
    reason: str

    @property
    def remedy(self) -> str:
        return "They may be in the topic or not: send them again, with the same event ids."


@dataclass(eq=False)
class InstanceIdInUseError(FactsError):
    """Another member of the group has that instance id."""

    group: str
    instance_id: str
    reason: str

    @property
    def remedy(self) -> str:
        return (
            "Give each instance its own id. That of an instance that was killed is free at once, "
            "and with `--protocol consumer` when its session has expired."
        )
