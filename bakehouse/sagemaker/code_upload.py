"""Delivers training code as SageMaker does: an archive in S3, which the toolkit in the image fetches.

S3 is played by moto's server on an address of this machine that the job's hosts reach, for as long as the job
runs. Whoever reaches that address can read the code meanwhile; the credentials are names, not secrets.
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
_HINT = "name the folder of the training code alone; data comes by a channel"
_IGNORED = ("__pycache__", ".git", ".venv")


@dataclass(frozen=True, slots=True)
class ServedCode:
    """Where the code lies, and what a host has to know to fetch it."""

    uri: str
    environment: Mapping[str, str]


@contextlib.contextmanager
def serve_from_s3(source: Path, address: str) -> Iterator[ServedCode]:
    """Offer a folder of code on a free port of `address` until the block ends."""
    import boto3  # type: ignore[import-untyped]
    from moto.server import ThreadedMotoServer

    _require(address)
    # A line for each request, among those of the job.
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
        # Servers in one process share what they hold: jobs that run at once need places of their own.
        key = f"{secrets.token_hex(8)}/{_FILE}"
        client.put_object(Bucket=_BUCKET, Key=key, Body=pack(source))
        yield ServedCode(f"s3://{_BUCKET}/{key}", environment)
    finally:
        server.stop()


def _require(address: str) -> None:
    """Raise EngineError where an address is not this machine's: moto's server would wait for ever."""
    try:
        socket.create_server((address, 0)).close()
    except OSError as error:
        message = f"the code can't be offered on `{address}`, which the hosts reach this machine by"
        hint = "run jobs on the machine that the engine runs on; `./bake doctor` says what it has"
        raise EngineError(
            Diagnostic(message, facts=(("because", str(error.strerror)),), hint=hint)
        ) from error


def pack(source: Path) -> bytes:
    """A folder, or a file alone, as the SDK packs it: the files at the top of a gzipped archive.

    Raises UsageError where it is too big to be code.
    """
    buffer = io.BytesIO()
    # Links would lead nowhere in the image.
    with (
        _readable(source),
        tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1, dereference=True) as archive,
    ):
        for name, path in _paths(source).items():
            archive.add(path, name, recursive=False)
    return buffer.getvalue()


def read_files(source: Path) -> dict[str, bytes]:
    """The files of a folder by their paths in it; raises UsageError where it is too big to be code."""
    with _readable(source):
        return {name: path.read_bytes() for name, path in _paths(source).items()}


@contextlib.contextmanager
def _readable(source: Path) -> Iterator[None]:
    """Raise UsageError where something of the code can't be read."""
    try:
        yield
    except OSError as error:
        message = f"can't read `{error.filename or source}`: {error.strerror or error}"
        raise UsageError(Diagnostic(message, hint=_HINT)) from error


def _paths(source: Path) -> dict[str, Path]:
    total, found = 0, {}
    paths, top = ([source], source.parent) if source.is_file() else (sorted(_below(source)), source)
    for path in paths:
        name = path.relative_to(top)
        if not path.is_file():
            continue
        total += path.stat().st_size
        if total > MAX_BYTES:
            message = f"`{source}` holds more than {MAX_BYTES // 1_000_000} MB"
            raise UsageError(Diagnostic(message, hint=_HINT))
        found[str(name)] = path
    return found


def _below(top: Path) -> Iterator[Path]:
    """All in a folder, and in those that links lead to; a link to a folder that it lies in is left out."""

    def stop(error: OSError) -> None:
        raise error

    above = {top: {top.resolve()}}
    for where, deeper, names in os.walk(top, onerror=stop, followlinks=True):
        folder = Path(where)
        known = above.pop(folder)
        real = {name: (folder / name).resolve() for name in deeper if name not in _IGNORED}
        deeper[:] = [name for name, path in real.items() if path not in known]
        above |= {folder / name: known | {real[name]} for name in deeper}
        yield from (folder / name for name in names if name not in _IGNORED)
