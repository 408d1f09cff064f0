"""Rows that another engine deletes by deletion vectors: delta-rs reads these, and writes none."""

import base64
import json
import struct
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable, TableFeatures
from pyarrow import parquet

_BASE85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def delete_by_vector(root, is_deleted):
    """Deletes the rows for which ``is_deleted`` holds: as files have them, the deleted ones too."""
    if "deletionVectors" not in (DeltaTable(root).protocol().reader_features or ()):
        DeltaTable(root).alter.add_feature(
            [TableFeatures.DeletionVectors], allow_protocol_versions_increase=True
        )
    actions = [{"commitInfo": {"operation": "DELETE", "operationParameters": {}}}]
    for add in _live(root):
        rows = parquet.ParquetFile(Path(root, unquote(add["path"]))).read().to_pylist()
        deleted = [place for place, row in enumerate(rows) if is_deleted(row)]
        if deleted and (vector := _vector(deleted)) != add.get("deletionVector"):
            # A file with another vector is another one in the log.
            same_file = {key: add[key] for key in ("path", "deletionVector") if key in add}
            remove = {**same_file, "deletionTimestamp": 1, "dataChange": True}
            actions += [{"remove": remove}, {"add": add | {"deletionVector": vector}}]
    _commit_path(root, DeltaTable(root).version() + 1).write_text(
        "\n".join(map(json.dumps, actions))
    )


def _live(root):
    adds = {}
    for version in range(DeltaTable(root).version() + 1):
        for line in _commit_path(root, version).read_text().splitlines():
            action = json.loads(line)
            if "remove" in action:
                adds.pop(action["remove"]["path"])
            if "add" in action:
                adds[action["add"]["path"]] = action["add"]
    return list(adds.values())


def _commit_path(root, version):
    return Path(root, "_delta_log", f"{version:020}.json")


def _vector(places):
    """A bitmap of one array container, inline; see "Deletion Vector Format" of Delta's protocol."""
    bitmap = struct.pack(f"<IIHHI{len(places)}H", 12346, 1, 0, len(places) - 1, 16, *places)
    content = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    padded = content + b"\0" * (-len(content) % 4)
    text = base64.b85encode(padded).translate(bytes.maketrans(_BASE85, _Z85)).decode()
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(content),
        "cardinality": len(places),
    }
