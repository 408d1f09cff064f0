"""The central site: events of all sites in one place, joined, counted, and sent home.

::

    warsaw.impressions, paris.impressions ─ merger ─ impressions ─┬─ lake, PostgreSQL
    warsaw.clicks,      paris.clicks      ─ merger ─ clicks ──────┴─ join ─ joined-clicks ─┬─ lake
                                                            dispatcher ─ warsaw, paris ────┘
"""

from __future__ import annotations

from datetime import timedelta

from events import Click, Impression, JoinedClick, by_user

from headrace import (
    Count,
    Dispatcher,
    Home,
    Join,
    Kafka,
    Lake,
    Merger,
    Mirror,
    Pipeline,
    Stats,
    Unique,
    deduplicate,
)

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
once = Unique(by=["event_id"], within=DAY)

# What comes from the sites.
warsaw_impressions = by_user("warsaw.impressions", Impression)
warsaw_clicks = by_user("warsaw.clicks", Click)
paris_impressions = by_user("paris.impressions", Impression)
paris_clicks = by_user("paris.clicks", Click)
warsaw = Mirror(
    "warsaw",
    source="warsaw",
    topics={"impressions": warsaw_impressions, "clicks": warsaw_clicks},
)
paris = Mirror(
    "paris",
    source="paris",
    topics={"impressions": paris_impressions, "clicks": paris_clicks},
)

# One sorted topic of each kind.
impressions = by_user("impressions", Impression)
late_impressions = by_user("impressions.late", Impression)
clicks = by_user("clicks", Click)
late_clicks = by_user("clicks.late", Click)
merge_impressions = Merger(
    "merge-impressions",
    [warsaw_impressions, paris_impressions],
    impressions,
    late_impressions,
    allowed_lateness=timedelta(seconds=5),
)
merge_clicks = Merger(
    "merge-clicks",
    [warsaw_clicks, paris_clicks],
    clicks,
    late_clicks,
    allowed_lateness=timedelta(seconds=5),
)

# From here on it is as if there were one site.
joined_clicks = by_user("joined-clicks", JoinedClick)
impressions_to_lake = Pipeline(
    "impressions-to-lake",
    source=impressions,
    sink=Lake("impressions", partition_by=("day", "campaign"), unique=once),
)
clicks_with_impressions = Pipeline(
    "clicks-with-impressions",
    source=Join(
        clicks,
        impressions,
        on=("impression_id", "event_id"),
        column="impression",
        within=HOUR,
        wait=timedelta(minutes=30),
        unmatched=Lake("unmatched", partition_by=("day",), unique=once),
    ),
    sink=Kafka(joined_clicks),
)
clicks_to_lake = Pipeline(
    "clicks-to-lake",
    source=joined_clicks,
    sink=Lake("clicks", partition_by=("day",), unique=once),
)
clicks_to_stats = Pipeline(
    "clicks-to-stats",
    source=joined_clicks,
    steps=[deduplicate(by=["event_id"], within=DAY)],
    sink=Stats("click_counts", by=("campaign",), every=DAY, measures={"clicks": Count()}),
)

# Users of the policy `random` are at home in Warsaw, those of `bts` in Paris.
dispatch_clicks = Dispatcher(
    "dispatch-clicks",
    joined_clicks,
    targets={"warsaw": "user-clicks", "paris": "user-clicks"},
    home=Home("policy", {"random": "warsaw", "bts": "paris"}),
)
