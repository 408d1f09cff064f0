"""Schemas of Protobuf: the text that a registry has, as descriptors of its messages."""

from __future__ import annotations

import functools
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from headrace.model import RegisteredSchema

_FILE = "headrace_schema.proto"
_COMPILE_SECONDS = 60.0
# A file, mostly its line, and what is wrong; beside those are warnings, and the compiler's own log.
_ERROR = re.compile(r"[^ :]+\.proto:(?!.*: warning:)")


@functools.lru_cache(maxsize=64)
def protobuf_schema(schema: RegisteredSchema) -> ProtobufSchema:
    """Returns a schema that was compiled once in this process.

    Raises:
        ValueError: if it is no schema of Protobuf's, with the compiler's words.
        OSError: if the compiler did not do its work, such as for want of memory.
    """
    return ProtobufSchema(schema)


class ProtobufSchema:
    """A schema whose messages can be found.

    Args:
        schema: the file that a record's messages are defined in, and those that are imported.

    Attributes:
        file: descriptor of the file of the schema.

    Raises:
        ValueError: if they are no schema of Protobuf's, with the compiler's words.
    """

    def __init__(self, schema: RegisteredSchema) -> None:
        from google.protobuf.descriptor_pool import DescriptorPool

        pool = DescriptorPool()
        compiled = _compiled(schema)
        try:
            for file in compiled.file:
                pool.Add(file)
        except TypeError as error:  # such as of two fields that have one name in JSON
            raise ValueError(f"it is no schema of Protobuf's ({error})") from error
        self.file: FileDescriptor = pool.FindFileByName(_FILE)

    def message(self, indices: Sequence[int]) -> Descriptor | None:
        """Returns the message at a place: its index in the file, then in the message around it."""
        names = self.file.message_types_by_name
        descriptor: Descriptor | None = None
        for index in indices:
            messages = list(names.values()) if descriptor is None else descriptor.nested_types
            if not 0 <= index < len(messages):
                return None
            descriptor = messages[index]
        return descriptor


def _compiled(schema: RegisteredSchema) -> FileDescriptorSet:
    """Has the compiler parse a schema: what it imports and the registry lacks is well known."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    with tempfile.TemporaryDirectory(prefix="headrace-protobuf-") as name:
        folder = Path(name)
        for path, text in _placed(schema, folder).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (folder / "known").write_bytes(_known().SerializeToString())
        places = [f"-I{place}" for place in (folder / "files", *_packaged())]
        options = [f"--descriptor_set_in={folder / 'known'}", "--include_imports"]
        command = [sys.executable, "-m", "grpc_tools.protoc", *places, *options]
        command += [f"--descriptor_set_out={folder / 'compiled'}", _FILE]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False
        )
        if done.returncode:
            raise _failure(done.returncode, done.stderr)
        return FileDescriptorSet.FromString((folder / "compiled").read_bytes())


def _placed(schema: RegisteredSchema, folder: Path) -> Mapping[Path, str]:
    """Returns the texts of files by where the compiler looks for them."""
    root = folder / "files"
    placed = {root / _FILE: schema.text}
    for name, text in schema.referenced:
        path = (root / name).resolve()
        if not path.is_relative_to(root.resolve()):
            raise ValueError(f"it imports {name!r}, which is no name of a file")
        placed.setdefault(path, text)
    return placed


def _packaged() -> list[Path]:
    """Returns folders with ``google/protobuf`` and ``google/type``, which registries lack."""
    folders = []
    if (spec := importlib.util.find_spec("grpc_tools")) is not None and spec.origin:
        folders.append(Path(spec.origin).parent / "_proto")
    if (spec := importlib.util.find_spec("google.type")) is not None:
        folders += [Path(place).parent.parent for place in spec.submodule_search_locations or ()]
    return folders


def _known() -> FileDescriptorSet:
    """Returns the files of Confluent's, which its serializers do not register."""
    from confluent_kafka.schema_registry.confluent import meta_pb2
    from confluent_kafka.schema_registry.confluent.type import decimal_pb2
    from google.protobuf import descriptor_pb2

    known = descriptor_pb2.FileDescriptorSet()
    for module in (descriptor_pb2, meta_pb2, decimal_pb2):
        known.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    return known


def _failure(code: int, errors: str) -> Exception:
    """Returns what the compiler says of the schema, or that it failed for another reason."""
    lines = [line for line in errors.splitlines() if _ERROR.match(line)]
    if lines:
        said = lines[0].removeprefix(f"{_FILE}:")
        return ValueError(f"it is no schema of Protobuf's ({said})")
    return OSError(f"Protobuf's compiler ended with the exit code {code}: {errors[-500:]}")
