"""handover: the standby of a pipeline takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.session import Session, command

if TYPE_CHECKING:
    from headrace.pipelines.standby.drivers import Handover


@command("headrace handover impressions-to-lake")
@click.argument("pipeline")
def handover(session: Session, pipeline: str) -> Handover:
    """Hand a pipeline over to its standby.

    The driver that runs it ends its batch, and becomes the standby; the other one continues with
    the next batch. Both were started with `headrace run --standby`, on any machine. Returns when
    the other one has the lease. Refused (exit code 3) if no standby is warm: nothing changes then.
    """
    from headrace.kafka.client.clients import client_config
    from headrace.pipelines.declaration import Pipeline
    from headrace.pipelines.standby.drivers import hand_over
    from headrace.project.services import bootstrap_servers

    [declared] = session.declared(Pipeline, pipeline)
    settings = session.settings
    kafka = settings.of("pipelines", declared.name).kafka
    return hand_over(client_config(kafka, bootstrap_servers(settings)), declared)
