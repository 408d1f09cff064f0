"""Figures of a pipeline that writes profiles."""

from __future__ import annotations

from headrace.metrics import Metric

PROFILE_METRICS = (
    Metric(
        "profile_expired_rows",
        "rows",
        "rows that `Profiles` dropped because their event time is `ttl` ago or more",
        "rising while nothing is read again: the pipeline is behind by more than `ttl`, or a"
        " producer's clock is",
        is_counter=True,
    ),
    Metric(
        "profile_forget_rows",
        "rows",
        "rows by which `Profiles` has forgotten users",
        "as many as there were requests; rising without them: look at `forget` of the declaration",
        is_counter=True,
    ),
)
