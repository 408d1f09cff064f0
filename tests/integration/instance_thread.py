"""An instance on a thread of the tests."""

import threading
from contextlib import contextmanager

from tests.waiting import LIMIT_SECONDS

from headrace.errors import HeadraceError


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
