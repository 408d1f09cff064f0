"""Profiles of users, for commands and programs."""

from __future__ import annotations

from headrace.errors import NotDeclaredError
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.sinks import sink_context
from headrace.project.loaded import LoadedProject
from headrace.sinks.profiles.declaration import Profiles
from headrace.sinks.profiles.store import Profile


def profile_stores(project: LoadedProject) -> dict[str, tuple[Pipeline, Profiles]]:
    """Returns a pipeline and its sink by the name of the store that it writes."""
    return {
        sink.store: (pipeline, sink)
        for pipeline in project.declared(Pipeline).values()
        for sink in pipeline.sinks
        if isinstance(sink, Profiles)
    }


def read_profile(project: LoadedProject, store: str, user: str) -> Profile | None:
    """Returns what a store holds of a user; None: nothing.

    Raises:
        ExtraMissingError: if the client of the store is not installed.
        NotDeclaredError: if no pipeline writes such a store.
        SinkUnavailableError: if the store does not answer.
        SinkError: if it refuses.
    """
    stores = profile_stores(project)
    if store not in stores:
        raise NotDeclaredError("store of profiles", store, ", ".join(sorted(stores)))
    pipeline, sink = stores[store]
    return sink.read(sink_context(project.settings, pipeline, sink), user)
