"""Whether the topics of sites fit each other: the same key in the same partition, and nothing lost.

A project declares its own topics; those at other sites belong to other projects. What both must
have in common is seen only where both clusters are asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError, HeadraceError
from headrace.kafka.admin.record_limits import (
    ANY_TIME,
    BROKERS_MAX_MESSAGE_BYTES,
    TIMES_AHEAD,
    TIMES_BEHIND,
)
from headrace.kafka.admin.topics import TopicState, topic_states
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.client.brokers import Brokers, cluster_id
from headrace.links.kind import ReplicatedTopic, replicated_topics
from headrace.links.target import naming_site
from headrace.model import Topic
from headrace.model.fault import Fault
from headrace.project.loaded import LoadedProject
from headrace.project.site_clusters import cluster_of
from headrace.settings import Settings
from headrace.topics.durability import default_retention_ms

ORIGIN_BYTES = 400
"""What a mirror or a dispatcher adds to a record: headers, and the names of site and topic."""
_TIME_TYPE, _APPEND_TIME = "message.timestamp.type", "LogAppendTime"
_MS_PER_HOUR = 3_600_000
_FOR_EVER = -1


class SiteTopics(NamedTuple):
    """What brokers of a site say: its topics, by name, and the id of its cluster."""

    states: Mapping[str, TopicState]
    cluster_id: str


SiteAnswer: TypeAlias = SiteTopics | HeadraceError | KafkaException
"""What is there, or why it is not known."""


@dataclass(frozen=True)
class LinkCheck:
    """The result of the check of one link.

    Attributes:
        link: which one.
        faults: what is wrong, each with its remedy; empty: it is as it must be.
        unreachable: the site that did not respond, so that nothing is known; empty: both did.
    """

    link: ReplicatedTopic
    faults: tuple[Fault, ...]
    unreachable: str = ""


def check_links(project: LoadedProject) -> list[LinkCheck]:
    """Returns what is wrong between the topics of each link.

    Raises:
        AuthorizationError: if an ACL is missing at a site.
        NotDeclaredError: if headrace.toml has no such site.
    """
    links = replicated_topics(project)
    answers = _ask_sites(project.settings, links)
    return [_check(project.settings, link, answers) for link in links]


def link_warnings(project: LoadedProject, brokers: Brokers) -> Iterator[Fault]:
    """Yields what is wrong between the topics of each link once the declared ones are there.

    Args:
        project: whose links are compared, as far as their sites answer.
        brokers: of the project's own site, which choose what is not declared.
    """
    planned = {topic.name: planned_topic(topic, brokers) for topic in project.topics.values()}
    links, own = replicated_topics(project), project.settings.site
    answers = _ask_sites(project.settings, links)
    known = {
        site: answer._replace(states={**planned, **answer.states}) if site == own else answer
        for site, answer in answers.items()
        if not isinstance(answer, Exception)
    }
    for link in links:
        if {link.source_site, link.target_site} <= known.keys():
            for fault in _check(project.settings, link, known).faults:
                yield Fault(f"{link}: {fault.message}", fault.remedy)
    for site, answer in answers.items():
        if isinstance(answer, BrokerUnreachableError):
            message = f"site {site} does not respond: its topics are not compared"
            yield Fault(message, "`headrace sites check` compares them once it does")
        elif isinstance(answer, Exception):
            message = f"site {site}: its topics are not compared: {answer}"
            yield Fault(message, "`headrace sites check` compares them")


def planned_topic(topic: Topic, brokers: Brokers) -> TopicState:
    """Returns a topic as `apply` would make it, with the settings that links are compared by."""
    retention_ms = default_retention_ms(brokers.config)
    defaults = {
        "max.message.bytes": brokers.config.get(
            "message.max.bytes", str(BROKERS_MAX_MESSAGE_BYTES)
        ),
        _TIME_TYPE: brokers.config.get(f"log.{_TIME_TYPE}", "CreateTime"),
        TIMES_AHEAD: brokers.config.get(f"log.{TIMES_AHEAD}", str(ANY_TIME)),
        TIMES_BEHIND: brokers.config.get(f"log.{TIMES_BEHIND}", str(ANY_TIME)),
        "retention.ms": str(_FOR_EVER if retention_ms is None else retention_ms),
    }
    live = LiveTopic(topic.name, "", topic.partitions, topic.replication)
    return TopicState(live, defaults | topic.kafka_config, frozenset(topic.kafka_config))


def _ask_sites(settings: Settings, links: Sequence[ReplicatedTopic]) -> dict[str, SiteAnswer]:
    """Asks each site of the links for its topics, all at the same time.

    A site has 15 seconds for each of the four requests.
    """
    topics: dict[str, set[str]] = defaultdict(set)
    for link in links:
        topics[link.source_site].add(link.source)
        topics[link.target_site].add(link.target)
    with ThreadPoolExecutor(max(1, len(topics))) as threads:
        answers = threads.map(partial(_ask, settings), topics, topics.values())
        return dict(zip(topics, answers, strict=True))


def _ask(settings: Settings, site: str, topics: Iterable[str]) -> SiteAnswer:
    try:
        with naming_site(site):
            config = cluster_of(settings, site).client_config()
            return SiteTopics(topic_states(config, topics), cluster_id(config))
    except (HeadraceError, KafkaException) as error:  # of settings that this machine lacks, too
        return error


def _check(
    settings: Settings, link: ReplicatedTopic, answers: Mapping[str, SiteAnswer]
) -> LinkCheck:
    states: list[TopicState | None] = []
    for site, topic in ((link.source_site, link.source), (link.target_site, link.target)):
        answer = answers[site]
        if isinstance(answer, BrokerUnreachableError):
            return LinkCheck(link, (), unreachable=site)
        if isinstance(answer, Exception):
            raise answer
        states.append(answer.states.get(topic))
    faults = [*_one_cluster(settings, link, answers), *link_faults(settings, link, *states)]
    return LinkCheck(link, tuple(faults))


def _one_cluster(
    settings: Settings, link: ReplicatedTopic, answers: Mapping[str, SiteAnswer]
) -> Iterator[Fault]:
    """Yields sites whose cluster is that of another one, if a topic may be copied to itself."""
    if link.source != link.target:
        return
    other = link.target_site if link.source_site == settings.site else link.source_site
    clusters = {
        site: answer.cluster_id
        for site, answer in answers.items()
        if isinstance(answer, SiteTopics) and answer.cluster_id
    }
    for site, cluster in clusters.items():
        if site != other and cluster == clusters.get(other):
            yield Fault(
                f"sites {site} and {other} are one cluster, {cluster}",
                f"set bootstrap_servers of [sites.{other}.kafka] to brokers of {other}: "
                "links between sites that are one copy records without end, or twice",
            )


def link_faults(
    settings: Settings, link: ReplicatedTopic, source: TopicState | None, target: TopicState | None
) -> Iterator[Fault]:
    """Yields what is wrong between two topics, as they are.

    Args:
        settings: the project's deployment.
        link: between them.
        source: the topic that is read; ``None``: it does not exist.
        target: the topic that is written; ``None``: it does not exist.
    """
    if source is None or target is None:
        places = (
            (link.source_site, link.source, source),
            (link.target_site, link.target, target),
        )
        for site, topic, state in places:
            if state is None:
                remedy = "`headrace apply` in the project of that site"
                yield Fault(f"there is no topic {topic} at {site}", remedy)
        return
    yield from _partitions(link, source, target)
    yield from _sizes(link, source, target)
    yield from _keys(link, source, target)
    yield from _times(link, source, target)
    yield from _retention(settings, link, source)


def _partitions(link: ReplicatedTopic, source: TopicState, target: TopicState) -> Iterator[Fault]:
    counts = source.live.partitions, target.live.partitions
    if counts[0] != counts[1]:
        yield Fault(
            f"{link.source} has {counts[0]} partitions at {link.source_site}, and {link.target} "
            f"has {counts[1]} at {link.target_site}",
            "declare the same number at both: otherwise a key is in different partitions, and "
            "partitions that the target lacks are not sent",
        )


def _sizes(link: ReplicatedTopic, source: TopicState, target: TopicState) -> Iterator[Fault]:
    largest, taken = (int(state.config["max.message.bytes"]) for state in (source, target))
    # Kafka's own default at both is what most have, and few records are as large as that.
    needed = largest + ORIGIN_BYTES if "max.message.bytes" in source.overrides else largest
    if taken < needed:
        yield Fault(
            f"{link.source} takes {largest} bytes at {link.source_site}, and {link.target} takes "
            f"{taken} at {link.target_site}",
            f'config={{"max.message.bytes": "{largest + ORIGIN_BYTES}"}} for {link.target}: a copy '
            "is larger than its record by some headers",
        )


def _keys(link: ReplicatedTopic, source: TopicState, target: TopicState) -> Iterator[Fault]:
    if target.is_compacted and not source.is_compacted:
        yield Fault(
            f"{link.target} at {link.target_site} is compacted, and {link.source} at "
            f"{link.source_site} is not: it takes no record without a key, and keeps one of each",
            f"cleanup.policy delete for {link.target}",
        )


def _times(link: ReplicatedTopic, source: TopicState, target: TopicState) -> Iterator[Fault]:
    if not link.keeps_times:
        return
    if target.config.get(_TIME_TYPE) == _APPEND_TIME:
        yield Fault(
            f"{link.target} at {link.target_site} has {_TIME_TYPE} {_APPEND_TIME}",
            f'config={{"{_TIME_TYPE}": "CreateTime"}} for {link.target}: {link.by} keeps the'
            " times of the records, which `reconcile` compares",
        )
    elif source.config.get(_TIME_TYPE) != _APPEND_TIME:
        for setting, side in ((TIMES_AHEAD, "ahead of"), (TIMES_BEHIND, "behind")):
            # Before Kafka 3.6, topics have neither, and take any time.
            allowed, taken = (int(s.config.get(setting, ANY_TIME)) for s in (source, target))
            if taken < allowed:
                yield Fault(
                    f"{link.source} at {link.source_site} takes records that are further {side} "
                    f"the clock than {taken} ms, and {link.target} at {link.target_site} does not",
                    f'config={{"{setting}": "{allowed}"}} for {link.target}: a record that a copy '
                    "does not take stops its partition",
                )


def _retention(settings: Settings, link: ReplicatedTopic, source: TopicState) -> Iterator[Fault]:
    other = link.target_site if link.source_site == settings.site else link.source_site
    cut_hours = settings.longest_cuts.get(other)
    kept_ms = int(source.config["retention.ms"])
    if cut_hours is None or kept_ms == _FOR_EVER or "delete" not in source.config["cleanup.policy"]:
        return
    if kept_ms < cut_hours * _MS_PER_HOUR:
        yield Fault(
            f"{link.source} at {link.source_site} keeps records for {kept_ms / _MS_PER_HOUR:g} "
            f"hours, and sites.{other}.longest_cut_hours is {cut_hours:g}",
            "give it a longer retention: what a cut outlasts is lost",
        )
    elif source.config.get("retention.bytes", "-1") != "-1":
        yield Fault(
            f"{link.source} at {link.source_site} keeps {source.config['retention.bytes']} bytes "
            f"of a partition, and sites.{other}.longest_cut_hours is {cut_hours:g}",
            "take retention.bytes away: records may go before the retention is over",
        )
