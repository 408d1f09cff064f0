"""An instance inside a program of your own, with its figures for Prometheus."""

from __future__ import annotations

from headrace.kafka.client.clients import ClientConfig
from headrace.runtime.prometheus import serving
from headrace.service.metrics import exposition
from headrace.workers.instance import WorkerInstance
from headrace.workers.monitoring.progress_monitor import ProgressMonitor
from headrace.workers.status import WorkerStatus


async def run_with_metrics(
    instance: WorkerInstance,
    name: str,
    client: ClientConfig,
    *,
    port: int,
    host: str = "127.0.0.1",
) -> None:
    """Runs an instance until it ends, and serves ``/metrics`` meanwhile.

    The figures are those of the instance and of each of its partitions, a second old at most. A
    failure to measure them does not end the instance.

    Args:
        instance: not started yet.
        name: of the instance, as a label of its figures.
        client: librdkafka's settings, which the ends of partitions are asked with.
        port: to listen on.
        host: to listen on.

    Raises:
        ServerStartError: if the port is taken.
        HeadraceError, KafkaException: if the instance ends other than by being stopped.
    """
    with serving(host, port) as server:

        def observe(progress: WorkerStatus) -> None:
            if server is not None:
                server.publish(exposition(WorkerStatus, [progress]))

        await ProgressMonitor(instance, name, client, observe).run_instance()
