"""References of workers on a real broker: topics that are recreated, grow, or change."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass

import pytest
from tests.integration.instances import Bench, drill, running
from tests.kafka_topics import grow_topic, make_topic
from tests.waiting import LIMIT_SECONDS, until, wait_for

from headrace.errors import TopicMissingError
from headrace.kafka.client.admin_requests import admin, describe
from headrace.kafka.table.changelog import write_changelog
from headrace.model import Topic
from headrace.workers import References, WorkerInstance, worker
from headrace.workers.consumer_group import needed_topics
from headrace.workers.timing import WorkerTiming

TIMING = WorkerTiming(topic_check_seconds=0.2)


@dataclass
class Account:
    plan: str


class Shop(Bench):
    """Logins, and a topic of accounts."""

    def __init__(self, bootstrap):
        super().__init__(bootstrap)
        self.accounts = Topic(
            f"accounts-{uuid.uuid4().hex[:8]}", event=Account, compaction=True, partitions=3
        )
        self.seen = []
        self.make_accounts()

        @worker(
            topic=self.topic,
            name=f"worker-{self.topic.name}",
            references={"accounts": self.accounts},
        )
        async def look_up(record, accounts: References[Account]):
            self.seen.append({key.decode(): account.plan for key, account in accounts.items()})

        self.look_up = look_up

    def make_accounts(self):
        make_topic(self.client, self.accounts.name, 3, config={"cleanup.policy": "compact"})

    def write(self, **plans):
        values = {
            name.encode(): None if plan is None else json.dumps({"plan": plan}).encode()
            for name, plan in plans.items()
        }
        write_changelog(self.client, self.accounts.name, values)

    def log_in(self):
        """Gives what the next record sees."""
        count = len(self.seen)
        self.send(1)
        wait_for(lambda: len(self.seen) > count)
        return self.seen[-1]

    def run(self, steps):
        """Runs ``steps`` on a thread, with the figures, beside an instance."""
        instance = WorkerInstance(self.look_up, self.client, timing=TIMING)

        async def run():
            async with running(instance):
                await until(lambda: instance.assignments)
                await asyncio.to_thread(steps, lambda name: instance.reference_figures[name])

        drill(run())


@pytest.fixture
def shop(broker):
    return Shop(broker.bootstrap_servers)


def test_values_are_those_of_the_topic_after_changes_deletions_and_a_restart(shop):
    shop.write(ann="free", bob="free", cid="free")

    def first(figure):
        assert shop.log_in() == {"ann": "free", "bob": "free", "cid": "free"}
        shop.write(ann="gold", bob=None, dan="free")
        wait_for(lambda: shop.log_in() == {"ann": "gold", "cid": "free", "dan": "free"})
        assert (figure("reference_keys"), figure("references_behind")) == (3, 0)

    shop.run(first)
    shop.write(cid=None)
    shop.run(lambda _: shop.log_in())
    assert shop.seen[-1] == {"ann": "gold", "dan": "free"}


def test_a_topic_that_is_recreated_is_read_again(shop):
    shop.write(ann="free", bob="free")

    def steps(figure):
        assert shop.log_in() == {"ann": "free", "bob": "free"}
        admin(shop.client).delete_topics([shop.accounts.name])[shop.accounts.name].result(
            LIMIT_SECONDS
        )
        wait_for(lambda: shop.accounts.name not in describe(shop.client, [shop.accounts.name]))
        wait_for(lambda: figure("references_behind") == 1)
        assert shop.log_in() == {"ann": "free", "bob": "free"}
        shop.make_accounts()
        # More records than before: no offset is out of range by which the client would notice it.
        shop.write(**{f"user{number}": "free" for number in range(50)}, bob="gold")
        wait_for(lambda: figure("reference_keys") == 51)
        wait_for(lambda: figure("references_behind") == 0)
        assert shop.log_in()["bob"] == "gold"

    shop.run(steps)


def test_partitions_that_are_added_are_read(shop):
    shop.write(ann="free")

    def steps(figure):
        grow_topic(shop.client, shop.accounts.name, 8)
        names = [f"user{number}" for number in range(50)]
        shop.write(**dict.fromkeys(names, "free"))
        wait_for(lambda: figure("reference_keys") == 51)
        assert shop.log_in() == dict.fromkeys(["ann", *names], "free")

    shop.run(steps)


def test_a_bad_record_deletes_its_key_and_is_counted(shop, caplog):
    shop.write(ann="free", bob="free")

    def steps(figure):
        write_changelog(shop.client, shop.accounts.name, {b"ann": b"no account"})
        wait_for(lambda: figure("rejected_references") == 1)
        assert shop.log_in() == {"bob": "free"}

    shop.run(steps)
    assert f"the record of {shop.accounts.name} at offset" in caplog.text


def test_an_instance_does_not_start_without_the_topic(shop, monkeypatch):
    monkeypatch.setattr(needed_topics, "KNOWN_WITHIN", needed_topics.KNOWN_WITHIN / 10)
    admin(shop.client).delete_topics([shop.accounts.name])[shop.accounts.name].result(LIMIT_SECONDS)
    wait_for(lambda: shop.accounts.name not in describe(shop.client, [shop.accounts.name]))
    with pytest.raises(TopicMissingError, match=shop.accounts.name):
        drill(WorkerInstance(shop.look_up, shop.client).run())
