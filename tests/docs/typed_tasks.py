"""Each documented form of a task, as a user writes it: ``mypy --strict`` has nothing to say."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from headrace import (
    BatchWorkerTask,
    KeyHash,
    RecordStatusObserver,
    References,
    Retry,
    Send,
    Start,
    Topic,
    Worker,
    WorkerRecord,
    WorkerSubpartition,
    WorkerTask,
    worker,
)


@dataclass
class Order:
    customer: str
    price: int


@dataclass
class Account:
    plan: str


accounts = Topic("accounts", event=Account, compaction=True)
clicks = Topic("clicks", partitions=4)
orders = Topic("orders", event=Order)


class Coroutines(WorkerTask):
    async def init(self, subpartition: WorkerSubpartition, config: Mapping[str, Any]) -> None:
        self.url = str(config["url"])

    def accept(self, record: WorkerRecord) -> bool:
        return record.key is not None

    async def process(self, record: WorkerRecord) -> None:
        await self.send("out", record.value, key=record.key, headers=record.headers)

    async def punctuate(self, now: datetime) -> None:
        self.send("out", now.isoformat().encode())

    async def close(self) -> None:
        self.url = ""


class Functions(WorkerTask):
    def init(self, subpartition: WorkerSubpartition, config: Mapping[str, Any]) -> None:
        self.lane = subpartition.index

    def process(self, record: WorkerRecord) -> None:
        self.send("out", record.value)

    def punctuate(self, now: datetime) -> None:
        self.lane += 1

    def close(self) -> None:
        self.lane = 0


class Observed(WorkerTask):
    async def process(self, record: WorkerRecord, observer: RecordStatusObserver) -> None:
        asyncio.get_running_loop().call_soon(observer.on_success)


class ObservedFunctions(WorkerTask):
    def process(self, record: WorkerRecord, observer: RecordStatusObserver) -> None:
        observer.on_failure(OSError("away"))


class Looking(WorkerTask):
    async def process(self, record: WorkerRecord) -> None:
        accounts: References[Account] = self.references["accounts"]
        self.send("out", accounts[record.key].plan.encode())


class Batches(BatchWorkerTask):
    async def process_batch(self, records: pa.RecordBatch) -> None:
        self.send("out", records.column("value")[0].as_py())


class BatchFunctions(BatchWorkerTask):
    def process_batch(self, records: pa.RecordBatch) -> None:
        self.send("out", records.column("value")[0].as_py())


@worker(topic=clicks, subpartitions=64, on_failure=Retry(attempts=3), queue_bytes=1_000_000)
async def enrich(record: WorkerRecord, send: Send) -> None:
    send("out", record.value, key=record.key)


@worker(topic=[clicks], processing_timeout=timedelta(seconds=5), parallelism=2)
def count(record: WorkerRecord) -> None:
    assert record.offset >= record.attempt > record.timestamp_ms


@worker(topic=orders, group="billing", start=Start.LATEST)
async def charge(order: Order, record: WorkerRecord, send: Send) -> int:
    send("receipts", f"{order.customer}: {order.price}".encode(), key=record.key)
    return order.price


@asynccontextmanager
async def prices(config: Mapping[str, Any]) -> AsyncIterator[dict[str, int]]:
    yield {str(config["customer"]): 7}


@worker(topic=orders, lifespan=prices, config={"customer": "ann"})
async def compare(order: Order, shared: dict[str, int], observer: RecordStatusObserver) -> None:
    if shared.get(order.customer) == order.price:
        observer.on_success()


@worker(topic=clicks)
def measure(value: bytes | None, send: Send) -> None:
    send("sizes", str(len(value or b"")).encode())


@worker(topic=clicks, value_deserializer=float, key_deserializer=bytes.decode)
async def weigh(weight: float, key: str | None, send: Send) -> None:
    send("weights", f"{key}: {weight}")


@worker(topic=orders, references={"accounts": accounts}, reference_bytes=1_000_000)
async def discount(order: Order, accounts: References[Account], record: WorkerRecord) -> str:
    plans = {key: account.plan for key, account in accounts.items() if key != record.key}
    known = accounts.get(order.customer) or accounts.get(record.key, Account("free"))
    return plans.get(b"ann", known.plan) if 7 in accounts else accounts["ann"].plan


async def called(record: WorkerRecord, send: Send) -> int:
    await discount(Order("ann", 7), References({"ann": Account("gold")}), record)
    return await charge(Order("ann", 7), record, send)


workers: list[Worker] = [
    Worker("one", clicks, Coroutines, partitioner=KeyHash(64), config={"url": "http://..."}),
    Worker("two", [clicks], Functions, punctuate_every=timedelta(seconds=1)),
    Worker("three", clicks, Observed),
    Worker("four", clicks, Batches, batch_records=1000),
    enrich,
    count,
    charge,
    compare,
    measure,
    discount,
]
