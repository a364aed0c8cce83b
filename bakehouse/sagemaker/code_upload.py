"""Training code for the hosts of local jobs: an archive in S3, which the toolkit in the image downloads.

moto's server simulates S3 on an address of this machine while the job runs. Everyone who can reach the
address can read the code. The credentials are placeholders, not secrets.
"""

import contextlib
import io
import logging
import os
import secrets
import socket
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bakehouse.errors import Diagnostic, EngineError, UsageError

MAX_BYTES = 500_000_000
REGION = "us-east-1"
_BUCKET = "training-code"
_FILE = "sourcedir.tar.gz"
_HINT = "use a directory with training code only, and a channel for data"
_IGNORED = ("__pycache__", ".git", ".venv")


@dataclass(frozen=True, slots=True)
class ServedCode:
    """URI of the code, and the environment that a host needs to download it."""

    uri: str
    environment: Mapping[str, str]


@contextlib.contextmanager
def serve_from_s3(source: Path, address: str) -> Iterator[ServedCode]:
    """Serve a directory of code on a free port of `address` until the block ends."""
    import boto3  # type: ignore[import-untyped]
    from moto.server import ThreadedMotoServer

    _require_local(address)
    # Otherwise its lines for each request appear among those of the job.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        environment = {
            "S3_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }
        client = boto3.client(
            "s3",
            endpoint_url=environment["S3_ENDPOINT_URL"],
            region_name=REGION,
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        client.create_bucket(Bucket=_BUCKET)
        # Servers in one process share their content, so each job needs its own key.
        key = f"{secrets.token_hex(8)}/{_FILE}"
        client.put_object(Bucket=_BUCKET, Key=key, Body=pack(source))
        yield ServedCode(f"s3://{_BUCKET}/{key}", environment)
    finally:
        server.stop()


def _require_local(address: str) -> None:
    """Raise EngineError for an address of another machine, because moto's server would hang."""
    try:
        socket.create_server((address, 0)).close()
    except OSError as error:
        message = f"the code can't be served on `{address}`, the address that hosts use for this machine"
        facts = (("because", str(error.strerror)),)
        hint = "run jobs on the machine of the container engine; `bake doctor` shows its features"
        raise EngineError(Diagnostic(message, facts=facts, hint=hint)) from error


def pack(source: Path) -> bytes:
    """Return a directory, or a single file, as a gzipped tar archive like the SDK's.

    Raises UsageError if it is too big to be code.
    """
    buffer = io.BytesIO()
    # Targets of links do not exist in the image.
    with (
        _translate_errors(source),
        tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1, dereference=True) as archive,
    ):
        for name, path in _files(source).items():
            archive.add(path, name, recursive=False)
    return buffer.getvalue()


def read_files(source: Path) -> dict[str, bytes]:
    """Return the files of a directory by relative path; raise UsageError if it is too big to be code."""
    with _translate_errors(source):
        return {name: path.read_bytes() for name, path in _files(source).items()}


@contextlib.contextmanager
def _translate_errors(source: Path) -> Iterator[None]:
    """Raise UsageError if a file can't be read."""
    try:
        yield
    except OSError as error:
        message = f"can't read `{error.filename or source}`: {error.strerror or error}"
        raise UsageError(Diagnostic(message, hint=_HINT)) from error


def _files(source: Path) -> dict[str, Path]:
    size, files = 0, {}
    paths, root = ([source], source.parent) if source.is_file() else (sorted(_walk(source)), source)
    for path in paths:
        name = path.relative_to(root)
        if not path.is_file():
            continue
        size += path.stat().st_size
        if size > MAX_BYTES:
            message = f"`{source}` contains more than {MAX_BYTES // 1_000_000} MB"
            raise UsageError(Diagnostic(message, hint=_HINT))
        files[str(name)] = path
    return files


def _walk(root: Path) -> Iterator[Path]:
    """Yield the files in a directory, following links. Links to a parent directory are skipped."""

    def fail(error: OSError) -> None:
        raise error

    parents = {root: {root.resolve()}}
    for path, directories, names in os.walk(root, onerror=fail, followlinks=True):
        directory = Path(path)
        ancestors = parents.pop(directory)
        targets = {name: (directory / name).resolve() for name in directories if name not in _IGNORED}
        directories[:] = [name for name, target in targets.items() if target not in ancestors]
        parents |= {directory / name: ancestors | {targets[name]} for name in directories}
        yield from (directory / name for name in names if name not in _IGNORED)
