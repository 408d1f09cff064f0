"""profile: shows what a store holds of a user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.session import Session, command, unknown

if TYPE_CHECKING:
    from headrace.pipelines.profiles.views import ShownProfile


@command("headrace profile u1 --store users")
@click.argument("user")
@click.option("--store", help="Which store of profiles; required if the project declares several.")
def profile(session: Session, user: str, *, store: str | None) -> ShownProfile:
    """Show the profile of a user.

    Its fields, its lists with the newest entry first, and when it ends. The exit code is 1 if there
    is no profile.
    """
    from headrace.errors import ProfileMissingError
    from headrace.pipelines.profiles.profiles import read_profile
    from headrace.pipelines.profiles.views import ShownProfile

    name = _store(session, store)
    result = read_profile(session.project, name, user)
    if result is None:
        raise ProfileMissingError(name, user)
    return ShownProfile(result)


def _store(session: Session, name: str | None) -> str:
    from headrace.pipelines.profiles.profiles import profile_stores

    stores = sorted(profile_stores(session.project))
    if name is not None and name not in stores:
        raise unknown("store", name, stores)
    if not stores:
        raise click.UsageError("no pipeline of the project has the sink Profiles")
    if name is None and len(stores) > 1:
        raise click.UsageError(f"name a store with --store: {', '.join(stores)}")
    return name or stores[0]
