"""Keys of smoke checks: what decides the answer of a check about an image, and nothing else.

A key covers the program of the check with all that it imports, what its containers get (files, arguments,
environment, limits, hosts, networks), GPU or not, and `JUDGE`. With the content ID of the image it names one
result. Another version of Bakehouse, comments in its code and labels are not part of it.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from bakehouse.builder import verify
from bakehouse.builder.verify import PROBES
from bakehouse.catalog.base_contents import KEY_DIRECTORIES, KEY_MARK, read_contents
from bakehouse.cluster.job import CODE_DIRECTORY, TrainingJob
from bakehouse.cluster.job_runner import host_spec
from bakehouse.cluster.smoke_checks import SmokeCheck, Startup, job_checks
from bakehouse.cluster.smoke_report import COMPONENTS, PRIVATE_KEYS, CheckResult, Setup
from bakehouse.engine.protocol import ContainerSpec
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.util.files import is_file, open_file, read_bytes
from bakehouse.util.format import format_count
from bakehouse.util.hashing import bytes_digest, key_of

JUDGE = 1
"""Number of the code that runs checks and judges answers. Raise it if an answer may get another outcome.

A test compares this code, without comments, with that of the number.
"""
COMPONENT_SECONDS = 600.0
STARTUP = f"""
command -v train >/dev/null && echo train
python3 -c 'from importlib.util import find_spec; find_spec("sagemaker_training") and print("toolkit")'
[ -z "$(ls -A {CODE_DIRECTORY} 2>/dev/null)" ] || echo code
"""
"""Shell script that prints what SageMaker would start in an image."""
MAX_CHANNEL_BYTES = 20_000_000
WORDS = ("train", "toolkit", "code")
"""Output of `STARTUP`, in its order."""
REMOTE_PROBE = PROBES / "remote_smoke.py"
_NOT_HANDED = frozenset({"image", "image_name", "gpus", "volumes"})
"""Fields of a container that name the image, or that differ between machines."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A check of an image, as it would run now."""

    key: str = ""
    obstacle: str = ""
    """Why it cannot run; then it has no key."""


def words_of(startup: Startup) -> str:
    """Return a startup in the form of a setup."""
    present = (startup.has_train, startup.has_toolkit, startup.has_code)
    return " ".join(word for word, is_there in zip(WORDS, present, strict=True) if is_there)


def startup_of(words: Collection[str]) -> Startup:
    """Return what an image starts from the output of `STARTUP`."""
    has_train = "train" in words
    return Startup(has_train, has_train and "toolkit" in words, "code" in words)


def definitions(image: Image, setup: Setup, base_keys: Collection[str]) -> dict[str, Definition]:
    """Return the checks of an image by name, in their order, as they would run in a setup.

    All results of a component's program have one key, except those of long checks, which run alone.
    """
    common = (JUDGE, STARTUP, setup.gpus > 0, _remote_runner(image) if setup.is_remote else "")
    found = {
        f"{COMPONENTS}.{part.component}": Definition(_component_key(image, part.component, "", common))
        for part in verify.checked_parts(image)
    }
    for check in job_checks(image, "", setup.gpus, startup_of(setup.startup.split()), setup.hosts):
        obstacle = obstacle_to(check, setup)
        found[check.name] = Definition(
            "" if obstacle or not check.job else _job_key(check, check.job, common), obstacle
        )
    found[PRIVATE_KEYS] = Definition(key_of(common, KEY_DIRECTORIES, KEY_MARK, sorted(base_keys)))
    return found


def program_of(name: str) -> str:
    """Return the name of the check that gives the result `name`: a component gives several."""
    return ".".join(name.split(".")[:2]) if name.startswith(f"{COMPONENTS}.") else name


def definition_of(name: str, known: Mapping[str, Definition]) -> Definition | None:
    """Return the check that gives the result `name`; None if the image has no such check."""
    return known.get(name) or known.get(program_of(name))


def long_definitions(image: Image, setup: Setup) -> dict[str, Definition]:
    """Return the checks that only run if they are named."""
    common = (JUDGE, setup.gpus > 0)
    return {
        f"{COMPONENTS}.{component}.{name}": Definition(_component_key(image, component, name, common))
        for component, name in verify.long_checks(image)
    }


def with_keys(
    results: Iterable[CheckResult],
    image: Image,
    setup: Setup,
    base_keys: Collection[str],
    date: str,
    machine: str,
) -> tuple[CheckResult, ...]:
    """Return results with the keys of their checks, and where and when they were found."""
    known = definitions(image, setup, base_keys)

    def key(result: CheckResult) -> str:
        found = definition_of(result.name, known)
        return found.key if found else ""

    return tuple(
        replace(result, key=result.key or key(result), setup=setup, date=date, machine=machine)
        for result in results
    )


def obstacle_to(check: SmokeCheck, setup: Setup) -> str:
    """Return the reason why a check does not run in a setup; empty if it runs."""
    if check.job is None:
        return check.not_tested
    if setup.is_remote and check.job.size > setup.hosts:
        return f"it needs {check.job.size} hosts; the job has {format_count(setup.hosts, 'host')}"
    if setup.is_remote and channel_bytes(check.job) > MAX_CHANNEL_BYTES:
        return f"its channels have more than {MAX_CHANNEL_BYTES // 1_000_000} MB, too much to send"
    return ""


def channel_bytes(job: TrainingJob) -> int:
    """Return the bytes of the directories that become channels."""
    return sum(path.stat().st_size for _, path in channel_files(job))


def base_keys_of(image: Image, recipe_roots: Sequence[Path]) -> frozenset[str]:
    """Return the sha256 of the private keys that are recorded for the vendor base of an image."""
    digest = image.base.digest if isinstance(image.base, RegistryBase) else None
    contents = digest and read_contents(recipe_roots, digest)
    return contents.private_keys if contents else frozenset()


def _component_key(image: Image, component: str, long_check: str, common: object) -> str:
    options = verify.ProbeOptions(
        [component], with_checks=not long_check, long_check=long_check, seconds=COMPONENT_SECONDS
    )
    declared, spec = verify.probe_of(image, options)
    return key_of("component", common, declared, _handed(spec))


def _job_key(check: SmokeCheck, job: TrainingJob, common: object) -> str:
    volumes = dict.fromkeys(job.channel_directories, "")
    hosts = [_handed(host_spec(job, host, "job", volumes)) for host in job.host_names]
    data = [(name, _file_digest(path)) for name, path in channel_files(job)]
    kind = check.kind
    judged = (kind.must_fail, kind.needs_model, kind.records_ranks, kind.needs_efa)
    expected = check.smoke.expect if check.smoke else ""
    gpus = [len(job.gpus_of(host)) for host in job.host_names]
    ends = (job.deadline, job.grace, *(["mpirun"] if job.ends_with_mpirun else []))
    return key_of("job", common, hosts, data, judged, expected, *ends, job.ranks, gpus)


def _handed(spec: ContainerSpec | None) -> dict[str, Any]:
    """Return what a container gets, as JSON values: settings that it has, and not those that it lacks."""
    if spec is None:
        return {}
    names = [field.name for field in fields(spec) if field.name not in _NOT_HANDED]
    values = {name: value for name in names if (value := getattr(spec, name))}
    values["files"] = {path: bytes_digest(content) for path, content in spec.files.items()}
    values["volumes"] = sorted(spec.volumes)
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}


def _remote_runner(image: Image) -> object:
    """Return what runs a check on the hosts of a job: the probe, behind the image's entry point."""
    return bytes_digest(read_bytes(REMOTE_PROBE)), image.entrypoint


def channel_files(job: TrainingJob) -> list[tuple[str, Path]]:
    """Return the files of the directories that become channels, with their path in the channel."""
    return [
        (f"{name}/{path.relative_to(directory)}", path)
        for name, directory in sorted(job.channel_directories.items())
        for path in sorted(Path(directory).rglob("*"))
        if is_file(path)
    ]


def _file_digest(path: Path) -> str:
    if path.is_symlink():
        # It may lead out of the project
        return f"link to {path.readlink()}"
    stat = path.stat()
    return _digest_of(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(4096)
def _digest_of(path: Path, size: int, changed: int) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
