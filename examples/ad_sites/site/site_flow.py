"""A site: producers write impressions and clicks; clicks of its users come back, into profiles."""

from __future__ import annotations

from datetime import timedelta

from events import Click, Impression, JoinedClick, by_user

from headrace import Latest, Pipeline, Profiles

impressions = by_user("impressions", Impression)
clicks = by_user("clicks", Click)
user_clicks = by_user("user-clicks", JoinedClick)

users = Pipeline(
    "users",
    source=user_clicks,
    sink=Profiles(
        "users",
        key="user",
        # The events are those of 2019, and a profile forgets what is older than this.
        ttl=timedelta(days=20 * 365),
        fields=("policy",),
        lists={"clicks": Latest(3, columns=("item_id", "campaign"))},
        event_id="event_id",
    ),
)
