"""Readers of files and answers that others may have written or damaged, and mutants of these."""

import contextlib
import hashlib
import io
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from random import Random
from unittest.mock import patch

import urllib3

from bakehouse import image_uris
from bakehouse.builder import build_log
from bakehouse.builder.timings import BuildTimes, spent
from bakehouse.catalog import consent, project, python_lock
from bakehouse.catalog.apt_lock import AptLock, NotLocked
from bakehouse.catalog.base_image_lock import read_locks
from bakehouse.catalog.pins import read_pins
from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.requirements_file import read_requirements
from bakehouse.catalog.trust_settings import Policy
from bakehouse.cli.diagnostics import failure_text
from bakehouse.cluster import failure, nccl_log, ranks, remote_smoke, smoke_report
from bakehouse.engine import buildkit_errors, buildx, engine_removal
from bakehouse.engine.buildkit_events import LOG_LINES, Event, Step, Tail
from bakehouse.engine.daemon_paths import DaemonPaths
from bakehouse.errors import BakehouseError, Location, Problems, RecipeError
from bakehouse.evidence import check_rows, page_rows, step_layers
from bakehouse.fetch import simple_index
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.ledger import releases
from bakehouse.plan import affected
from bakehouse.registry import manifest
from bakehouse.registry.http_errors import RegistryError
from bakehouse.registry.referrers import ArtifactRepository
from bakehouse.registry.registry import Credentials, NamedRegistry
from bakehouse.trust import bundle, policy
from bakehouse.trust.bundle import SignedStatement
from bakehouse.trust.statements import PROVENANCE, TESTS
from bakehouse.util import archive_reader
from bakehouse.util.archive_reader import ArchiveError
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import ContentId, Digest
from tests.support import mutated_samples as samples
from tests.support.mutants import Form, mutant
from tests.support.mutations import Mutations
from tests.support.release_records import a_record

Read = Callable[[bytes], None]

_NOT_LOCKED = (BakehouseError, NotLocked)
_REGISTRY = (BakehouseError, RegistryError)
"""`publish` turns the errors of a registry into its own."""


Mutate = Callable[[bytes, Random], bytes]


@dataclass(frozen=True, slots=True)
class Surface:
    """A kind of input: valid documents with their readers, each of which takes a document or refuses it."""

    samples: tuple[tuple[bytes, Read], ...]
    mutate: Mutate
    refusals: tuple[type[Exception], ...] = (BakehouseError,)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one case; other errors than refusals are raised."""

    document: bytes
    is_taken: bool
    seconds: float
    """CPU seconds of this process, because the machine runs others."""


class MutatedInputs:
    """All surfaces, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._recipes = Mutations(directory / "recipes")
        self.surfaces = dict(self._surfaces())

    def case(self, name: str, seed: int, case: int) -> tuple[bytes, Read]:
        """Return the mutant of a case and its reader: the same numbers give the same mutant."""
        random = Random(f"{name} {seed} {case}")
        surface = self.surfaces[name]
        sample, read = random.choice(surface.samples)
        return surface.mutate(sample, random), read

    def run(self, name: str, document: bytes, read: Read) -> Result:
        """Read the mutant of a case, and print what is wrong with it."""
        began = time.process_time()
        try:
            read(document)
        except self.surfaces[name].refusals as error:
            if isinstance(error, BakehouseError):
                for diagnostic in error.diagnostics:
                    failure_text(diagnostic)
            return Result(document, False, time.process_time() - began)
        return Result(document, True, time.process_time() - began)

    def _surfaces(self) -> Iterator[tuple[str, Surface]]:
        recipes = ((text.encode(), self._read_part("")) for text in self._recipes.recipes)
        components = ((text.encode(), self._read_part(name)) for name, text in self._recipes.components)
        for name, samples_of_name in (("recipes", recipes), ("components", components)):
            yield name, Surface(tuple(samples_of_name), lambda sample, random: mutant(sample, "yaml", random))
        yield "pins.yaml", _surface("yaml", self._read_pins, samples.PINS)
        yield "pyproject.toml", _surface("toml", self._read_settings, *samples.SETTINGS)
        yield "requirements", _surface("text", self._read_requirements, samples.REQUIREMENTS)
        yield "apt locks", _surface("text", self._read_apt_lock, samples.APT_LOCK, refusals=_NOT_LOCKED)
        yield (
            "locks of bases",
            _surface("text", self._read_base_lock, samples.BASE_LOCK, refusals=_NOT_LOCKED),
        )
        yield "Python locks", _surface("text", self._read_python_lock, samples.PYTHON_LOCK)
        yield "lock.json", _surface("json", _read_image_lock, samples.IMAGE_LOCK)
        yield "releases.json", _surface("json", self._read_ledger, samples.LEDGER)
        yield "results of checks", _surface("json", self._read_check_rows, samples.CHECK_ROWS)
        yield "smoke reports", _surface("json", self._read_smoke_report, samples.SMOKE_REPORT)
        yield "remote smoke results", _surface("json", _read_remote_results, samples.REMOTE_RESULTS)
        yield "checks.txt", _surface("text", self._read_page_rows, samples.PAGE_ROWS)
        yield "layers.txt", _surface("text", self._read_layers, samples.LAYERS)
        yield "builds.json", _surface("json", self._read_builds, samples.BUILDS)
        yield "BuildKit events", _surface("json", self._read_events, *samples.EVENTS)
        yield "output of steps", _surface("text", self._read_step_output, samples.STEP_OUTPUT)
        yield "job logs", _surface("text", _read_job_log, *samples.JOB_LOGS)
        yield "registry manifests", _surface("json", _read_manifest, *samples.MANIFESTS, refusals=_REGISTRY)
        yield "registry configurations", _surface("json", _read_configuration, samples.CONFIGURATION)
        yield "registry tag lists", _surface("json", _read_tags, samples.TAGS, refusals=_REGISTRY)
        yield "registry tokens", _surface("json", _read_token, samples.TOKEN, refusals=_REGISTRY)
        yield "registry errors", _surface("json", _read_errors, samples.ERRORS, refusals=_REGISTRY)
        yield "registry referrers", _surface("json", _read_referrers, samples.REFERRERS, refusals=_REGISTRY)
        yield "registry headers", _surface("json", _read_headers, samples.HEADERS, refusals=_REGISTRY)
        yield (
            "signed bundles",
            _surface("json", _read_bundle, samples.BUNDLE, refusals=(bundle.RefusedError,)),
        )
        yield (
            "signed predicates",
            _surface("json", _read_predicate, *samples.PREDICATES, refusals=(ValueError,)),
        )
        yield "records of policies", _surface("json", self._read_policy_record, samples.POLICY_RECORD)
        yield "package indexes", _surface("json", _read_index, samples.INDEX)
        yield "package index pages", _surface("text", _read_index_page, samples.INDEX_PAGE)

        archives = tuple((document, _read_archive) for document in samples.archives())
        yield "archives", Surface(archives, _damaged, (ArchiveError,))
        yield "records of installed engines", _surface("json", self._read_installation, samples.INSTALLATION)

    def _read_installation(self, document: bytes) -> None:
        paths = DaemonPaths.below(self._directory)
        self._write("state/installed.json", document)
        engine_removal.summary(engine_removal.read(paths))

    def _read_policy_record(self, document: bytes) -> None:
        root = self._write("policed/a.pub", b"").parent
        self._write("policed/pyproject.toml", samples.POLICED)
        record = consent.policy_record(root, self._directory / "home/bakehouse")
        self._write(str(record.relative_to(self._directory)), document)
        policed = project.find(root, {"XDG_STATE_HOME": str(self._directory / "home")})
        for request in policed.unconfirmed.values():
            failure_text(request.error.diagnostics[0])

    def _read_part(self, component: str) -> Read:
        return lambda document: self._recipes.take(document, component)

    def _write(self, name: str, document: bytes) -> Path:
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(document)
        return path

    def _read_pins(self, document: bytes) -> None:
        path = self._write("pins/pins.yaml", document)
        problems = Problems()
        read_pins([path.parent], problems)
        problems.raise_as(RecipeError)

    def _read_settings(self, document: bytes) -> None:
        path = self._write("project/pyproject.toml", document)
        project.images_directory(path.parent)
        project.find(path.parent, {})

    def _read_requirements(self, document: bytes) -> None:
        requirements = read_requirements(self._write("requirements/requirements.txt", document))
        for package in (*requirements.packages, *requirements.constraints):
            _ = package.name

    def _read_apt_lock(self, document: bytes) -> None:
        lock = AptLock("bookworm", (self._write("apt.packages", document),))
        base = lock.base(["ca-certificates"])
        lock.install(["gcc"], base)
        lock.chain(["gcc"], "libc6", lock.debs)
        for deb in lock.debs:
            _ = deb.row, deb.url

    def _read_base_lock(self, document: bytes) -> None:
        self._write("bases/apt/bases/base.packages", document)
        locks = read_locks([self._directory / "bases"])
        for base in locks.bases.values():
            base.adds(["gcc"])
        for deb in locks.debs:
            _ = deb.row, deb.url

    def _read_python_lock(self, document: bytes) -> None:
        path = self._write("python.lock", document)
        lock = python_lock.Lock(path, Location(path, 1, 1))
        _ = lock.first_line, lock.is_readable
        for package in lock.packages:
            _ = package.row, package.key_input

    def _read_ledger(self, document: bytes) -> None:
        path = self._write("images/mpi-cpu/releases.json", document)
        for record in releases.load(path):
            _ = record.region, record.locations, record.version_of("torch")
        list(releases.newest_first(path))
        image_uris.retrieve("mpi-cpu", version="2.9", py_version="py311", ledger=path.parent.parent)

    def _read_smoke_report(self, document: bytes) -> None:
        with contextlib.suppress(ValueError, RecursionError, TypeError, AttributeError):
            # Half of the mutants have the hash of their content, as if a machine had written them
            content = json.loads(document)
            if len(document) % 2:
                content.pop("sha256", None)
                text = json.dumps(content, sort_keys=True, separators=(",", ":"))
                content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
                document = json.dumps(content).encode()
        path = self._write("seen.json", document)
        report = smoke_report.read_file(path, "mpi-cpu", ContentId(samples.DIGEST), timedelta(days=30))
        smoke_report.require_passed(report)

    def _read_check_rows(self, document: bytes) -> None:
        self._write(f"checks/{samples.DIGEST.removeprefix('sha256:')}.json", document)
        rows = check_rows.load(self._directory, ContentId(samples.DIGEST))
        assert check_rows.merge(rows) == check_rows.merge((*rows, *rows))

    def _read_page_rows(self, document: bytes) -> None:
        self._write("pages/images/checks.txt", document)
        for rows in page_rows.read(ProjectSettings(self._directory / "pages", ())).values():
            [page_rows.setup_of(row.setup) for row in rows]

    def _read_layers(self, document: bytes) -> None:
        rows = step_layers.read(self._write("layers/layers.txt", document).parent)
        assert step_layers.parse(step_layers.text_of(rows)) == rows

    def _read_builds(self, document: bytes) -> None:
        self._write("builds/builds.json", document)
        for build in build_log.load_builds(self._directory / "builds"):
            sum(step.seconds for step in build.steps)

    def _read_step_output(self, document: bytes) -> None:
        text = document.decode(errors="replace")
        step = Step("sha256:aa", "mpi-cpu", "metis", "2/4", "RUN make", 1.0, 2.0, error=text[-2_000:])
        tail = Tail(LOG_LINES)
        tail.add(text)
        dockerfile = self._write("Dockerfile", b"FROM scratch AS metis\nRUN make\n")
        output = buildkit_errors.Failure(
            ("mpi-cpu",), (step,), {"sha256:aa": tail.lines()}, text, frozenset()
        )
        error = buildkit_errors.explain(output, {"mpi-cpu": dockerfile}, {}, self._directory / "logs")
        for diagnostic in error.diagnostics:
            failure_text(diagnostic)

    def _read_events(self, document: bytes) -> None:
        times = BuildTimes()

        def note(event: Event) -> None:
            times.note(event)

        reader = buildx._OutputReader({"mpi-cpu": "mpi-cpu", "other": "other"}, note)
        for start in range(0, len(document), 4_096):
            reader.feed(document[start : start + 4_096])
        reader.feed(b"\nERROR: failed to solve: process did not complete successfully: exit code: 1\n")
        spent(times.steps(0.0))
        for work in times.works.values():
            _ = work.label, work.doing, work.moved()
        dockerfile = self._write("Dockerfile", b"FROM scratch AS metis\nRUN make\n")
        raise buildkit_errors.explain(
            reader.failure(), {"mpi-cpu": dockerfile, "other": dockerfile}, {}, self._directory / "logs"
        )


def _surface(
    form: Form, read: Read, *documents: bytes, refusals: tuple[type[Exception], ...] = (BakehouseError,)
) -> Surface:
    return Surface(
        tuple((document, read) for document in documents),
        lambda sample, random: mutant(sample, form, random),
        refusals,
    )


def _damaged(sample: bytes, random: Random) -> bytes:
    """Return an archive with some other, repeated, missing or swapped bytes."""
    data = bytearray(sample)
    for _ in range(random.randint(1, 4)):
        start = random.randrange(len(data) or 1)
        end = start + random.choice((1, 1, 4, 100))
        match random.randrange(4):
            case 0:
                data[start:end] = random.randbytes(min(end, len(data)) - start)
            case 1:
                del data[start:end]
            case 2:
                data[start:start] = data[start:end] * random.choice((1, 50))
            case _:
                data[start:] = data[random.randrange(len(data) or 1) :]
    return bytes(data)


def _read_archive(document: bytes) -> None:
    archive_reader.find(io.BytesIO(document), re.compile("none"), 1000)
    archive_reader.find(io.BytesIO(document), re.compile(".*METADATA"), 1000)


def _read_job_log(document: bytes) -> None:
    log = document.decode(errors="replace")
    split = ranks.split_log(log)
    ranks.launcher_failures(split.rest)
    failure.script_exit(log)
    nccl_log.read_transports([log])
    for text in (log, *split.ranks.values()):
        failure.find_cause(text, failure.LogContext("algo-1", ("algo-1", "algo-2")), 1)


def _read_image_lock(document: bytes) -> None:
    affected._key(document)


def _read_remote_results(document: bytes) -> None:
    remote_smoke.read_results(document.decode(errors="replace"), "the log")


def _read_configuration(document: bytes) -> None:
    manifest.unfit_platform(document, "linux/amd64")
    manifest.origin_of(document)


def _read_bundle(document: bytes) -> None:
    bundle.verify(document, samples.DIGEST, ["mpi-cpu"], samples.KEYS)


def _read_predicate(document: bytes) -> None:
    predicate = parse_json(document)
    if isinstance(predicate, dict):
        signed = [SignedStatement(kind, predicate, samples.KEYS[0]) for kind in (PROVENANCE, TESTS)]
        policy.problems(Policy((), ("pinned", "tests")), a_record(), signed, timedelta(days=30))


def _read_index(document: bytes) -> None:
    for link in simple_index.links(
        document.decode(errors="replace"), simple_index.JSON, "https://a.example/x/"
    ):
        _ = link.file


def _read_index_page(document: bytes) -> None:
    for link in simple_index.links(document.decode(errors="replace"), "text/html", "https://a.example/x/"):
        _ = link.file


@dataclass(frozen=True)
class _Response:
    """A response of a registry."""

    status: int
    content: bytes
    headers: dict[str, str]


@cache
def _named_registry() -> NamedRegistry:
    # To load the certificates of the system takes longer than a mutant.
    return NamedRegistry("registry.example", lambda host: Credentials("name", "password"))


@contextlib.contextmanager
def _registry(*responses: _Response) -> Iterator[ArtifactRepository]:
    """Yield a repository whose registry sends these responses, and the last one to all further requests."""
    left = list(responses)

    def answer(pool: urllib3.PoolManager, method: str, url: str, **arguments: object) -> urllib3.HTTPResponse:
        # Invalid URLs fail as they do when they are sent
        urllib3.util.parse_url(url)
        response = left.pop(0) if len(left) > 1 else left[0]
        return urllib3.HTTPResponse(
            io.BytesIO(response.content), response.headers, response.status, preload_content=False
        )

    policy = RetryPolicy(attempts=1, pause=0.0, timeout=1.0)
    with patch.object(urllib3.PoolManager, "urlopen", answer):
        yield ArtifactRepository(_named_registry(), "team/mpi-cpu", policy)


def _response(status: int, content: bytes = b"", **headers: str) -> _Response:
    return _Response(status, content, {name.replace("_", "-"): value for name, value in headers.items()})


def _read_manifest(document: bytes) -> None:
    with _registry(_response(200, document, Content_Type=manifest.DOCKER_MANIFEST)) as repository:
        answer = repository.manifest("latest")
    assert answer
    _ = answer.digest, answer.image, answer.bytes, answer.layer_bytes
    for form in manifest.FORMS.values():
        manifest.unfit(answer, form)


def _read_tags(document: bytes) -> None:
    with _registry(_response(200, document)) as repository:
        ", ".join(sorted(repository.tags()))


def _read_token(document: bytes) -> None:
    challenge = _response(
        401, WWW_Authenticate='Bearer realm="https://auth.registry.example/token",service="x"'
    )
    with _registry(challenge, _response(200, document), _response(200, b"{}")) as repository:
        repository.ping()


def _read_errors(document: bytes) -> None:
    status = 400 + len(document) % 200
    with _registry(_response(status, document)) as repository:
        try:
            repository.tags()
        except RegistryError as error:
            _ = error.answer, error.is_full, error.may_pass, error.is_repository_missing
            raise


def _read_referrers(document: bytes) -> None:
    with _registry(_response(200, document), _response(200, samples.MANIFESTS[0])) as repository:
        repository.contents(samples.DIGEST, bundle.MEDIA_TYPE)


def _read_headers(document: bytes) -> None:
    """The document has the headers of the response to a request, and those after a challenge."""
    try:
        first, second = json.loads(document)
        # Longer lines are refused by the standard library
        headers = [{str(key): str(value)[:65_000] for key, value in each.items()} for each in (first, second)]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return
    responses = [
        _response(401),
        _response(200, b'{"token": "x"}'),
        _response(200, b'{"tags": []}'),
        _response(429),
    ]
    for response, values in zip(responses, (headers[0], {}, headers[1], headers[0]), strict=True):
        response.headers.update(values)
    with _registry(*responses) as repository:
        repository.tags()
        repository.digest_of("latest")
        repository.has_blob(Digest(samples.DIGEST), 5)
