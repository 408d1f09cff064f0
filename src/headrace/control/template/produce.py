"""Sends page views to the project's Kafka: python produce.py [COUNT]."""

from __future__ import annotations

import json
import random
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path

from flow import page_views

from headrace.control.services import broker_config
from headrace.kafka.client import producer
from headrace.settings import environment, load_settings


def main(count: int) -> None:
    """Sends ``count`` page views and waits until Kafka has them."""
    settings = load_settings(Path(__file__).parent, environment())
    sender = producer(broker_config(settings))
    for _ in range(count):
        visitor = f"visitor-{random.randrange(1000)}"
        event = {
            "event_id": str(uuid.uuid4()),
            "event_time": datetime.now(UTC).isoformat(),
            "visitor": visitor,
            "page": random.choice(["/", "/pricing", "/docs"]),
            "country": random.choice(["DE", "PL", "US"]),
        }
        sender.produce(page_views.name, json.dumps(event).encode(), visitor.encode())
        sender.poll(0)
    sender.flush()
    print(f"{count} page views sent to {page_views.name}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
