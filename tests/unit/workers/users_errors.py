"""Exceptions that are awkward to whoever handles them, and tasks that raise them."""

from headrace import BatchWorkerTask, InvalidRecordError, WorkerTask

GOOD = b"good"


class EmptyError(Exception):
    """Counts its problems, and has none: false as a truth value."""

    def __len__(self):
        return 0


class FalseError(Exception):
    def __bool__(self):
        return False


class UndecidedError(Exception):
    def __bool__(self):
        raise ValueError("neither true nor false")


FALSE_ERRORS = [EmptyError, FalseError, UndecidedError]


class UnreadableError(Exception):
    def __str__(self):
        raise ValueError("no text")

    __repr__ = __str__


class Nameless(type):
    def __getattribute__(cls, name):
        if name in {"__name__", "__qualname__", "__module__"}:
            raise RuntimeError(name)
        return super().__getattribute__(name)


class NamelessError(Exception, metaclass=Nameless):
    pass


def nameless():
    return NamelessError()


class Unreadable:
    def __str__(self):
        raise KeyError("no text")

    __repr__ = __str__


class OwnBaseError(BaseException):
    pass


class ClasslessError(Exception):
    @property
    def __class__(self):
        raise RuntimeError("no class")


class LyingError(Exception):
    """Says that it is another one, as proxies do."""

    __class__ = SystemExit


class InaccessibleError(Exception):
    def __getattribute__(self, name):
        raise RuntimeError(f"no {name}")


def misplaced():
    """Returns an error that Python's own functions can't format."""
    return SyntaxError("bad", ("file", "a", "b", 5))


def unreadable_reason():
    error = InvalidRecordError("bad-order")
    error.reason = error.detail = Unreadable()
    return error


def huge():
    return ValueError("x" * 1_000_000)


ERRORS = [
    *FALSE_ERRORS,
    UnreadableError,
    nameless,
    OwnBaseError,
    ClasslessError,
    LyingError,
    InaccessibleError,
    GeneratorExit,
    misplaced,
    unreadable_reason,
    huge,
]


class Awaited(WorkerTask):
    """Raises the error that a record's value is the number of; so do the tasks below."""

    async def process(self, record):
        raise_error(record.value)


class OnThread(WorkerTask):
    def process(self, record):
        raise_error(record.value)


class Observed(WorkerTask):
    async def process(self, record, observer):
        if record.value == GOOD:
            observer.on_success()
        else:
            observer.on_failure(ERRORS[int(record.value)]())


class ObservedOnThread(WorkerTask):
    def process(self, record, observer):
        raise_error(record.value)
        observer.on_success()


class Unaccepting(WorkerTask):
    def accept(self, record):
        raise_error(record.value)
        return True

    async def process(self, record):
        pass


class UnacceptingObserved(Unaccepting):
    async def process(self, record, observer):
        observer.on_success()


class Batched(BatchWorkerTask):
    async def process_batch(self, records):
        for value in records.column("value").to_pylist():
            raise_error(value)


class BatchedOnThread(BatchWorkerTask):
    def process_batch(self, records):
        for value in records.column("value").to_pylist():
            raise_error(value)


class Sending(WorkerTask):
    """Sends to a topic that fails with the error; so do the tasks below."""

    async def process(self, record):
        if record.value != GOOD:
            self.send(failing(record.value), None)


class SendingObserved(Sending):
    async def process(self, record, observer):
        await super().process(record)
        observer.on_success()


class SendingBatches(BatchWorkerTask):
    async def process_batch(self, records):
        for value in records.column("value").to_pylist():
            if value != GOOD:
                self.send(failing(value), None)


def raise_error(value):
    if value != GOOD:
        make = ERRORS[int(value)]
        raise make()


def raised(make):
    """Returns an error that was raised here."""
    try:
        raise_error(ERRORS.index(make))
    except BaseException as error:  # noqa: BLE001
        return error


def failing(value):
    """Returns the topic that fails with the error of that number."""
    return f"failing-{int(value)}"


RAISING = [
    Awaited,
    OnThread,
    Observed,
    ObservedOnThread,
    Unaccepting,
    UnacceptingObserved,
    Batched,
    BatchedOnThread,
]
SENDING = [Sending, SendingObserved, SendingBatches]
