"""What flows: page views from Kafka into a table partitioned by day and country."""

from __future__ import annotations

from datetime import datetime, timedelta

from headrace import Lake, Pipeline, Topic


class PageView:
    """One page seen by one visitor. Annotations are the fields of the JSON event."""

    event_id: str
    event_time: datetime
    visitor: str
    page: str
    country: str


page_views = Topic(
    "page-views",
    event=PageView,
    key="visitor",  # records of one visitor keep their order
    event_time="event_time",
    partitions=4,
    retention=timedelta(days=7),
)

page_views_to_lake = Pipeline(
    "page-views-to-lake",
    source=page_views,
    sink=Lake("page_views", partition_by=["day", "country"]),
)
