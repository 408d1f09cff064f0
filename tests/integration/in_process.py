"""Commands and instances in the process of the tests; those that need Spark: see ``session``."""

import threading
from contextlib import contextmanager

from click.testing import CliRunner
from tests.waiting import LIMIT_SECONDS

from headrace.cli import main
from headrace.errors import HeadraceError


def run_command(folder, *arguments, exit_code=0):
    """Returns the result of a command, as click's runner has it."""
    result = CliRunner().invoke(main, [*arguments, "--project", str(folder)])
    assert result.exit_code == exit_code, result.output
    return result


@contextmanager
def running(instance, exit_codes=(0,)):
    """Runs an instance on a thread until the context is left; yields the thread.

    ``exit_codes``: of the command that would run it.
    """
    codes = []

    def run():
        try:
            instance.run(lambda _: None)
        except HeadraceError as error:
            codes.append(error.exit_code)
        else:
            codes.append(0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        instance.stop()
        thread.join(LIMIT_SECONDS)
    assert set(codes) <= set(exit_codes), codes
    assert codes, "it has not ended, or an error that is not ours has ended it"
