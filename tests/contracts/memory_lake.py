"""A lake in memory: the smallest thing that keeps the contract of sinks."""

import json
import threading
from collections import defaultdict
from dataclasses import dataclass, field

from headrace.model.partition_value import unsafe_partition_value


@dataclass(eq=False)
class MemoryFile:
    content: list[dict]
    partition_values: dict

    @property
    def rows(self):
        return len(self.content)


@dataclass
class MemoryLake:
    """Storage (every file) and log (the live ones) are two lists."""

    storage: list[MemoryFile] = field(default_factory=list)
    live: list[MemoryFile] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def open(self):
        return MemoryTable(self)

    def write(self, rows):
        found = defaultdict(list)
        for row in rows:
            stored = partitioned(row)
            found[stored["day"], stored["hour"], stored["campaign"]].append(stored)
        files = [
            MemoryFile(content, dict(zip(("day", "hour", "campaign"), values, strict=True)))
            for values, content in found.items()
        ]
        with self.lock:
            self.storage += files
        return files

    def rows(self):
        return [row for file in self.live for row in file.content]

    def stored(self):
        return len(self.storage)

    def delete(self, files):
        self.storage = [file for file in self.storage if file not in files]


@dataclass
class MemoryTable:
    lake: MemoryLake

    def versions(self, app_ids):
        return {name: self.lake.versions[name] for name in app_ids if name in self.lake.versions}

    def commit(self, files, transaction):
        with self.lake.lock:
            if not transaction.follows(self.lake.versions, "memory"):
                return False
            self.lake.live += files
            self.lake.versions.update(transaction.versions)
            return True

    def discard(self, files):
        self.lake.delete([file for file in files if file not in self.lake.live])

    def compact(self, min_files, retention):
        with self.lake.lock:
            self.lake.live = self._merged(self.lake.live, min_files)
            if not retention:
                self.lake.storage = list(self.lake.live)

    def _merged(self, files, min_files):
        groups = defaultdict(list)
        for file in files:
            groups[tuple(file.partition_values.values())].append(file)
        return [one for group in groups.values() for one in self._one(group, min_files)]

    def _one(self, group, min_files):
        if len(group) < min_files:
            return group
        content = [row for file in group for row in file.content]
        merged = MemoryFile(content, group[0].partition_values)
        self.lake.delete(group)
        self.lake.storage.append(merged)
        return [merged]


def partitioned(row):
    at, campaign = row["at"], row["campaign"] or None
    unsafe = campaign is not None and unsafe_partition_value(campaign)
    return {
        **row,
        "campaign": "__unsafe__" if unsafe else campaign,
        "day": at.date(),
        "hour": at.hour,
        "_rescued": json.dumps({"campaign": campaign}) if unsafe else None,
    }
