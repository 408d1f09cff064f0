"""An ingest service as people write it: FastAPI, pydantic, aiokafka."""

import asyncio
import hashlib
import hmac
import os
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

TOPIC, ACCOUNT = os.environ["TOPIC"], os.environ["ACCOUNT"]
TOKEN = hashlib.sha256(os.environ["TOKEN"].encode()).digest()
HEADERS = [("account", ACCOUNT.encode()), ("project", b"shop")]
MAX_BYTES, MAX_EVENTS, DEADLINE_SECONDS = 1_000_000, 1000, 5.0
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)


class PageView(BaseModel):
    model_config = ConfigDict(strict=True)

    event_id: Annotated[str, Field(min_length=1, max_length=256)]
    event_time: AwareDatetime
    visitor: Annotated[str, Field(min_length=1)]
    page: str
    referrer: str
    user_agent: str
    country: str
    duration_ms: int


class Refusal(BaseModel):
    index: int
    detail: str


class Verdict(BaseModel):
    accepted: int
    refused: list[Refusal]


@asynccontextmanager
async def lifespan(app: FastAPI):
    app.state.producer = AIOKafkaProducer(
        bootstrap_servers=os.environ["BOOTSTRAP"],
        acks="all",
        enable_idempotence=True,
        compression_type="lz4",
        linger_ms=2,
        max_batch_size=1_000_000,
    )
    await app.state.producer.start()
    yield
    await app.state.producer.stop()


app = FastAPI(lifespan=lifespan)


def authorized(authorization: Annotated[str, Header()] = "") -> None:
    given = hashlib.sha256(authorization.removeprefix("Bearer ").encode()).digest()
    if not hmac.compare_digest(given, TOKEN):
        raise HTTPException(401, "no valid token")


@app.post("/v1/topics/{topic}/events", status_code=202, dependencies=[Depends(authorized)])
async def events(topic: str, request: Request) -> Verdict:
    if topic != TOPIC:
        raise HTTPException(404, "no such topic")
    body = await request.body()
    if len(body) > MAX_BYTES:
        raise HTTPException(413, "the body is too large")
    accepted, refused = check(documents(body))
    try:
        await asyncio.wait_for(send(request.app.state.producer, accepted), DEADLINE_SECONDS)
    except (KafkaError, TimeoutError) as error:
        raise HTTPException(503, str(error)) from error
    return Verdict(accepted=len(accepted), refused=refused)


def documents(body: bytes) -> list[Any]:
    try:
        document = from_json(body)
    except ValueError as error:
        raise HTTPException(400, str(error)) from error
    found = document if isinstance(document, list) else [document]
    if len(found) > MAX_EVENTS:
        raise HTTPException(413, "too many events")
    return found


def check(found: list[Any]) -> tuple[list[PageView], list[Refusal]]:
    accepted, refused, seen = [], [], set()
    latest = datetime.now(UTC) + timedelta(hours=1)
    for index, document in enumerate(found):
        try:
            event = PageView.model_validate(document, strict=False)
        except ValidationError as error:
            refused.append(Refusal(index=index, detail=str(error)))
            continue
        if event.event_id in seen or not EARLIEST <= event.event_time <= latest:
            refused.append(Refusal(index=index, detail="a repeated id, or out of bounds"))
            continue
        seen.add(event.event_id)
        accepted.append(event)
    return accepted, refused


async def send(producer: AIOKafkaProducer, events: list[PageView]) -> None:
    futures = [
        await producer.send(TOPIC, to_json(event), event.visitor.encode(), headers=HEADERS)
        for event in events
    ]
    await asyncio.gather(*futures)
