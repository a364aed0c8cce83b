"""Valid documents that campaigns mutate, with every field that their readers know."""

import base64
import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Iterator
from functools import partial

import zstandard

from bakehouse.catalog.project import HOME
from bakehouse.cluster import smoke_report
from bakehouse.registry.manifest import DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST
from bakehouse.trust.bundle import MEDIA_TYPE, STATEMENT_TYPE
from bakehouse.trust.keys import PublicKey
from bakehouse.util.oci import Digest
from tests.support.locked_debian import index, stanza

DIGEST = Digest(f"sha256:{'4f' * 32}")
_OTHER = f"sha256:{'ab' * 32}"
_SHA256 = "cd" * 32


def _json(document: object) -> bytes:
    return json.dumps(document, indent=1).encode()


class _AnyKey(PublicKey):
    """Stub of a key that accepts every signature, so that mutated statements are read too."""

    def verifies(self, signature: bytes, content: bytes) -> bool:
        return True


KEYS = (_AnyKey(b"", "any.pub"),)

PINS = f"""\
images:
  registry.example/train:1: {DIGEST}
files:
  https://files.example/a.whl: {{sha256: {_SHA256}, bytes: 4}}
  debian:part=1/part_1.tar.xz: {{sha256: {_SHA256}, bytes: 5}}
""".encode()

SETTINGS = (
    b"""\
[tool.bakehouse]
recipes = ["."]
registry = "team"
region = "eu-west-1"
repository_prefix = "team"
mirrors = ["mirror", "https://mirror.example/files", "s3://bucket/files"]
ca = "ca.pem"
cache = "~/cache"
registry_port = 5050
ledger = "s3://our-bucket/releases"
builders = ["one", "two"]
signing_key = "signing.pem"

[tool.bakehouse.prices]
"ml.p4d.24xlarge" = 32.77
"ml.m5.xlarge" = 1

[tool.bakehouse.registries.team]
account = "123456789012"
regions = ["eu-west-1", "us-west-2"]
prefix = "team"
profile = "team"
role = "arn:aws:iam::123456789012:role/Publisher"
fips = false
dual_stack = true
scan = "HIGH"
create = {scan_on_push = true, encryption = "KMS", tags = {owner = "team"}, untagged_days = 3, \
pull_accounts = ["123456789012"], pull_organization = "o-a1b2c3d4e5"}

[tool.bakehouse.registries.other]
host = "registry.example:5000"
prefix = "team"
""",
    b"""\
[tool.bakehouse]
signing_key = "awskms:///arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"

[tool.bakehouse.policy]
keys = ["pyproject.toml"]
require = ["tests", "signature"]
rebuilds = 1

[tool.bakehouse.ci]
images = ["mpi-*"]
requirement = "git+https://git.example/bakehouse.git@0123456789abcdef0123456789abcdef01234567"
test = "make test"
shards = 3
runner = "large"
branch = "main"
repository = "owner/name"
role = "arn:aws:iam::123456789012:role/Publisher"
create = true
code_scanning = true
secrets = {build = ["HF_TOKEN"]}

[tool.bakehouse.ci.variables]
upgrade = ["PIP_INDEX_URL"]
""",
)

REQUIREMENTS = f"""\
# ours
numpy>=1.26,<3 --hash=sha256:{_SHA256}
torch[all]==2.9.1+cpu ; python_version >= "3.11" and sys_platform == "linux"
ours @ https://files.example/ours-1.0-py3-none-any.whl
theirs @ git+https://git.example/team/theirs.git@v1.0#subdirectory=a
more \\
  ~=1.0
-r requirements.txt
-c requirements.txt
""".encode()

APT_LOCK = index().encode()
BASE_LOCK = f"""\
Base: nvidia/cuda:12.8.1-base@{_OTHER}

Step: curl gcc
Adds: curl gcc libcurl4

Step: gcc
Adds: gcc

{stanza("curl", {"Site": "http://mirror.example/ubuntu"})}
{stanza("gcc", {"Site": "http://mirror.example/ubuntu"})}
{stanza("libcurl4", {})}""".encode()

PYTHON_LOCK = f"""\
# Python 3.11: numpy>=1.26
# packages sha256:{_SHA256}
numpy==2.3.1 --hash=sha256:{_SHA256}  # numpy-2.3.1-cp311-cp311-manylinux_2_28_x86_64.whl 16000000
torch==2.9.1+cpu --hash=sha256:{_SHA256}  # torch-2.9.1.whl 190000000 replaces 2.8.0 from https://a.example/t.whl
ours==1.0 --hash=sha256:{_SHA256}  # ours-1.0.tar.gz 1000 from wheels/ours%20-1.0.tar.gz
mpi4py==4.1.2  # installed by a component
""".encode()

_ROW = {"name": "gcc", "version": "12.2", "sha256": _SHA256, "bytes": 1000, "file": "pool/main/g/gcc/gcc.deb"}
IMAGE_LOCK = _json(
    {
        "image": "mpi-cpu",
        "key": "c0d16a74" * 8,
        "base": {"reference": "bakehouse/debian:12", "bootstrapped": "bookworm"},
        "system": [_ROW],
        "archives": [{"file": "a.tgz", "sha256": None, "bytes": None, "source": "https://a.example/a.tgz"}],
        "python": [_ROW],
    }
)

_RECORD = {
    "artifacts": [{"media_type": "application/vnd.cyclonedx+json", "digest": _OTHER}],
    "bytes": 595_000_000,
    "candidate": False,
    "checks": [{"name": "mpi_2x2", "outcome": "passed"}, {"name": "nccl", "outcome": "not tested"}],
    "config": _OTHER,
    "date": "2026-11-20",
    "digest": DIGEST,
    "entry_point": "train.py",
    "findings": [{"severity": "HIGH", "count": 2}],
    "gpu": False,
    "gpu_architecture": ">=7.5,<10",
    "image": "mpi-cpu",
    "image_uri": f"127.0.0.1:5050/bakehouse/mpi-cpu@{DIGEST}",
    "key": "7c1e44b0" * 8,
    "launchers": ["mpirun"],
    "media_type": DOCKER_MANIFEST,
    "not_scanned": "",
    "parts": [{"component": "pytorch", "variant": "py311", "version": "2.9.1"}],
    "provides": [{"name": "pytorch", "version": "2.9"}, {"name": "python", "version": "3.11"}],
    "regions": [{"region": "eu-west-1", "image_uri": f"a.example/b@{DIGEST}", "tag": "t"}],
    "registry": "127.0.0.1:5050",
    "repository": "bakehouse/mpi-cpu",
    "revision": "1a2b3c4",
    "scanned": "2026-11-20",
    "scans": [
        {
            "key": "mEwvbyI8ZTtbRsTd",
            "finished": "2026-11-20T10:00:00Z",
            "updated": "2026-11-19T00:00:00Z",
            "findings": [{"severity": "HIGH", "count": 2}],
            "waived": 1,
            "waived_until": "2027-01-31",
            "not_scanned": ["files"],
        }
    ],
    "tags": ["mpi-cpu-20261120-7c1e44b0"],
    "tested": True,
    "training_module": "",
    "transport": "mpi",
}
LEDGER = _json({"format": 1, "releases": [_RECORD, {**_RECORD, "candidate": True, "regions": []}]})

_CHECK = {
    "name": "train_success",
    "outcome": "passed",
    "seconds": 4.3,
    "reason": "",
    "ranks": 1,
    "failed_rank": "",
    "exit": "",
    "source": "bakehouse/probes/train_ok.py",
    "tail": ["one", "two"],
    "log": "build/smoke/mpi-cpu/train_success",
    "key": _SHA256,
    "setup": {"startup": "train toolkit", "hosts": 1, "gpus": 0, "is_remote": False},
    "date": smoke_report.now(),
    "machine": "host",
}
_CHECKS = [_CHECK, {**_CHECK, "name": "mpi_2x2", "failed_rank": "algo-2 rank 3"}]
CHECK_ROWS = _json({"format": 1, "rows": _CHECKS})
SMOKE_REPORT = _json(
    {
        "image": "mpi-cpu",
        "content": DIGEST,
        "transport": "mpi",
        "checks": _CHECKS,
        "machine": "host",
        "date": smoke_report.now(),
        "origin": "",
        "unfinished": [],
        "interrupted": "",
        "sha256": _SHA256,
    }
)
_HOST = {
    "exit_code": 0,
    "success": True,
    "failure": "",
    "model": [],
    "seconds": 1.0,
    "events": [],
    "log": "x",
}
REMOTE_RESULTS = _json(
    {
        "id": "a",
        "image": "a.example/b",
        "startup": {"words": ["train"]},
        "keys": [],
        "results": {"train_success": {"hosts": {"algo-1": _HOST}, "seconds": 4.3, "timed_out": False}},
        "interrupted": "",
        "finished": True,
    }
)
PAGE_ROWS = (
    b"# Generated by `bake render`, format 1: image, check, setup, key, result, day.\n"
    b"mpi-cpu mpi_2x2 e1/0/train+toolkit 0123456789abcdef01234567 passed 2026-11-29\n"
)
LAYERS = f"""\
# Generated by `bake render`, format 1: step or image, platform, stubs, result.
{"0a" * 16} linux/amd64 - sha256:{"1b" * 32}
{"2c" * 16} linux/arm64 debian,hwloc -
""".encode()
_STEP = {
    "stage": "metis",
    "position": "2/4",
    "text": "RUN make",
    "images": ["mpi-cpu"],
    "seconds": 4.5,
    "cached": False,
    "spent": [["compile", 4.5]],
    "started": 1.25,
}
BUILDS = _json([{"started": "2026-11-20T10:00:00+00:00", "builder": "", "steps": [_STEP, _STEP]}])
_VERTEX = {
    "digest": _OTHER,
    "name": "[mpi-cpu metis 2/4] RUN make",
    "started": "2026-11-21T01:19:29.152726877Z",
    "completed": "2026-11-21T01:19:31Z",
    "cached": False,
    "error": "process did not complete successfully: exit code: 1",
    "inputs": [_OTHER],
}
_STATUS = {
    "vertexes": [_VERTEX, {**_VERTEX, "digest": DIGEST, "name": "exporting to image", "error": ""}],
    "statuses": [
        {
            "id": "extracting",
            "vertex": _OTHER,
            "name": "x",
            "current": 5,
            "total": 10,
            "timestamp": "2026-11-21T01:19:29Z",
        }
    ],
    "logs": [
        {
            "vertex": _OTHER,
            "stream": 1,
            "data": base64.b64encode(b"Get:1 http://a.example\nmake: *** [a] Error 1\n").decode(),
            "timestamp": "2026-11-21T01:19:30Z",
        }
    ],
}
EVENTS = (_json(_STATUS), _json({**_STATUS, "vertexes": [{**_VERTEX, "error": "context canceled"}]}))

STEP_OUTPUT = b"""\
Get:1 http://mirror.example bookworm/main amd64 gcc amd64 4:12.2.0-3 [5216 B]
Collecting numpy==2.3.1
curl: (22) The requested URL returned error: 404
a.c:12:3: fatal error: x.h: No such file or directory
make: *** [Makefile:2: a] Error 1
registry.example/a:1: failed to resolve source metadata for registry.example/a:1: denied
    Expected sha256 %(one)s
         Got        %(two)s
secret ca: not found
Dockerfile:2
--------------------
   1 |     FROM scratch AS metis
   2 | >>> RUN make
--------------------
ERROR: failed to solve: process "/bin/sh -c make" did not complete successfully: exit code: 2
""" % {b"one": b"ab" * 32, b"two": b"cd" * 32}
JOB_LOGS = (
    *(path.read_bytes() for path in sorted((HOME / "tests" / "cluster" / "job_logs").glob("*.log"))),
    b"""\
[1,0]<stdout>:algo-1:42:99 [0] NCCL INFO Using network AWS Libfabric
[1,mpirank:3,algo-2]<stderr>:algo-1:42:99 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
[default1]:ValueError: no
mpirun noticed that process rank 1 with PID 12 on node algo-1 exited on signal 9 (Killed).
MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD
  Process name: [[12,1],3]
  Exit code:    1
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_10:00:00
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 42)
ExitCode 1
""",
)

_LAYER = {"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "digest": _OTHER, "size": 1000}
MANIFESTS = (
    _json(
        {
            "schemaVersion": 2,
            "mediaType": DOCKER_MANIFEST,
            "config": {
                "mediaType": "application/vnd.docker.container.image.v1+json",
                "digest": DIGEST,
                "size": 10,
            },
            "layers": [_LAYER, {**_LAYER, "mediaType": MEDIA_TYPE}],
        }
    ),
    _json(
        {
            "schemaVersion": 2,
            "mediaType": OCI_INDEX,
            "manifests": [
                {
                    "mediaType": OCI_MANIFEST,
                    "digest": DIGEST,
                    "size": 10,
                    "platform": {"os": "linux", "architecture": "amd64"},
                    "annotations": {"vnd.docker.reference.type": "attestation-manifest"},
                }
            ],
        }
    ),
)
CONFIGURATION = _json(
    {
        "os": "linux",
        "architecture": "amd64",
        "created": "2026-11-21T01:19:30Z",
        "config": {"Labels": {"org.opencontainers.image.revision": "1a2b3c", "example": "x"}},
        "rootfs": {"type": "layers", "diff_ids": [_OTHER]},
    }
)
TAGS = _json({"name": "team/mpi-cpu", "tags": ["1.0", "latest"]})
TOKEN = _json({"token": "t", "access_token": "t", "expires_in": 300, "issued_at": "2026-11-21T01:19:30Z"})
ERRORS = _json({"errors": [{"code": "DENIED", "message": "no", "detail": {"Err": 28, "name": "a"}}]})
REFERRERS = _json({"manifests": [{"digest": DIGEST, "size": 10, "mediaType": OCI_MANIFEST}]})
HEADERS = _json(
    [
        {
            "WWW-Authenticate": 'Bearer realm="https://auth.registry.example/token",service="x",scope="a:b:pull"',
            "Retry-After": "1",
        },
        {
            "Link": '</v2/team/mpi-cpu/tags/list?n=5&last=x>; rel="next"',
            "Docker-Content-Digest": DIGEST,
            "Content-Length": "5",
            "Content-Type": "application/json",
            "Location": "/v2/x",
        },
    ]
)

_STATEMENT = {
    "_type": STATEMENT_TYPE,
    "subject": [{"name": "mpi-cpu", "digest": {"sha256": DIGEST.removeprefix("sha256:")}}],
    "predicateType": "https://in-toto.io/attestation/test-result/v0.1",
    "predicate": {"result": "PASSED"},
}
BUNDLE = _json(
    {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": "a"}},
        "dsseEnvelope": {
            "payload": base64.b64encode(_json(_STATEMENT)).decode(),
            "payloadType": "application/vnd.in-toto+json",
            "signatures": [{"sig": base64.b64encode(b"signature").decode()}],
        },
    }
)

_FILE = "ours-1.0-py3-none-any.whl"
INDEX = _json(
    {
        "meta": {"api-version": "1.1"},
        "name": "ours",
        "files": [
            {
                "filename": _FILE,
                "url": f"https://files.example/{_FILE}",
                "hashes": {"sha256": _SHA256},
                "requires-python": ">=3.11",
                "core-metadata": {"sha256": _SHA256},
                "size": 1000,
                "upload-time": "2026-11-21T01:19:30Z",
                "yanked": "broken",
            }
        ],
    }
)
INDEX_PAGE = f"""\
<!DOCTYPE html><html><head><meta name="pypi:repository-version" content="1.1"></head><body>
<a href="../../files/{_FILE}#sha256={_SHA256}" data-requires-python="&gt;=3.11"
   data-core-metadata="sha256={_SHA256}" data-yanked="broken">{_FILE}</a>
<![CDATA[ x ]]><a href="https://files.example/{_FILE}">{_FILE}</a>
</body></html>
""".encode()

INSTALLATION = json.dumps(
    {"version": 1, "packages": ["docker.io"], "files": ["/etc/apt/x"], "directories": ["/var/lib/docker"]}
).encode()


def archives() -> Iterator[bytes]:
    """Yield a zip archive, and a tar archive in each compression."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(zipfile.ZipInfo("a-1.dist-info/METADATA"), "Name: a\n" * 20)
    yield buffer.getvalue()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as sdist:
        for name in ("a-1/" + "long/" * 30 + "name", "a-1/ä", "a-1/METADATA"):
            entry = tarfile.TarInfo(name)
            entry.size = 100
            sdist.addfile(entry, io.BytesIO(b"Name: a\n" * 20))
    tar = buffer.getvalue()
    packer = zstandard.ZstdCompressor()
    for pack in (bytes, partial(gzip.compress, mtime=0), bz2.compress, lzma.compress, packer.compress):
        yield pack(tar)


PREDICATES = (
    _json({"buildDefinition": {"internalParameters": {"unpinned": ["packages of apt: vim"]}}}),
    _json(
        {
            "result": "PASSED",
            "configuration": [{"uri": "u", "annotations": {"finishedOn": "2026-11-20T12:00:00+00:00"}}],
            "passedTests": ["mpi"],
            "failedTests": [],
        }
    ),
)
POLICED = b'[tool.bakehouse.policy]\nkeys = ["a.pub"]\nrequire = ["tests"]\n'
POLICY_RECORD = _json({"keys": ["0" * 64], "rebuilds": 1, "require": ["pinned", "tests"]})
