"""Tokens as Kafka has them; while Kafka is unreachable, as this host last knew them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from headrace.ingest.tokens.token import Token
from headrace.runtime.files.durable_files import replace_file

_LOG = logging.getLogger("headrace.ingest")


class Registry(Protocol):
    """The source of tokens; it is not used before it has read all of them."""

    @property
    def ready(self) -> bool:
        """Whether all tokens were read."""
        ...

    @property
    def changes(self) -> int:
        """The number of records that were read, which shows whether anything has changed."""
        ...

    def get(self, public_id: str) -> Token | None:
        """Returns a token by its public id, or ``None``."""
        ...

    def tokens(self) -> Mapping[str, Token]:
        """Returns all tokens by their public ids."""
        ...


class KnownTokens:
    """The registry once it was read; until then the tokens of the file, if there is one.

    The file holds hashes of secrets only. A thread replaces it within about a second of a change.
    A token that was revoked while this host was down is known as it was, until Kafka answers.
    """

    def __init__(self, registry: Registry, file: Path, save_seconds: float = 1.0) -> None:
        self._registry, self._file, self._save_seconds = registry, file, save_seconds
        self._kept = _read(file)
        self._written = -1
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="known tokens", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether tokens are known, from Kafka or from the file."""
        return self._registry.ready or self._kept is not None

    @property
    def are_current(self) -> bool:
        """Whether they are those of Kafka; those of the file may lack a new token or secret."""
        return self._registry.ready

    def get(self, public_id: str) -> Token | None:
        """Returns a token by its public id, also one that is revoked or has expired."""
        if self._registry.ready or self._kept is None:
            return self._registry.get(public_id)
        return self._kept.get(public_id)

    def keep(self) -> None:
        """Writes the file if the registry was read and has changed since."""
        changes = self._registry.changes
        if not self._registry.ready or changes == self._written:
            return
        lines = [token.encoded() + b"\n" for token in self._registry.tokens().values()]
        try:
            replace_file(self._file, b"".join(lines), mode=0o600)
        except OSError as error:
            _LOG.warning(
                "Cannot save the tokens in %s, for starts without Kafka: %s", self._file, error
            )
        else:
            self._written = changes

    def close(self) -> None:
        """Ends the thread that saves the tokens."""
        self._ending.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._ending.wait(self._save_seconds):
            try:
                self.keep()
            except Exception:  # noqa: BLE001 - without it no later token would be kept
                _LOG.exception("Saving the tokens failed, retrying")


def _read(file: Path) -> Mapping[str, Token] | None:
    """Returns the tokens of the file, without those that can't be read; ``None`` if none can."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return None  # nothing was kept yet
    tokens = {}
    for number, line in enumerate(lines, 1):
        try:
            token = Token.decoded(line)
        except ValueError as error:
            _LOG.warning("Cannot read the token in line %d of %s: %s", number, file, error)
        else:
            tokens[token.public_id] = token
    return None if lines and not tokens else tokens
