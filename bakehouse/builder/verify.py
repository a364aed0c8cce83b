"""Verification of a built image: the installed versions of all components match the declared ones.

Each component's smoke.py reads its version; `probes/checks.py` runs all of them in one container.
"""

import hashlib
import json
import re
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import elftools
import packaging
from packaging.version import InvalidVersion, Version

from bakehouse import catalog
from bakehouse.catalog import secrets
from bakehouse.catalog.size_budget import REQUIREMENTS
from bakehouse.engine.protocol import ContainerSpec, Engine
from bakehouse.errors import BuildError, Diagnostic
from bakehouse.plan.model import BootstrappedBase, Image, InstalledComponent
from bakehouse.util.files import read_bytes, read_text, write_whole
from bakehouse.util.hashing import key_of
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import Digest

PROBES = Path(__file__).parents[1] / "probes"
PROBE_SECONDS = 600.0
_DIRECTORY = "/run/bakehouse"
_RECORD = "verification.json"
_CONTENTS, _LIBRARIES = (
    InstalledComponent(name, "", "", PROBES / f"{name}.py") for name in ("contents", "libraries")
)
"""Checks of the whole image: its files, and the libraries that the loader finds."""
_IMPORTS = InstalledComponent(REQUIREMENTS, "", "", PROBES / "imports.py")
"""Imports of the packages that the recipe's requirements name."""
_LONG_CHECK = re.compile(r"^def long_check_(\w+)", re.MULTILINE)
"""A check that can take longer than 30 s on two cores."""
_FACTS = Path(catalog.__file__).with_name("data") / "libraries.json"


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_TESTED = "not tested"


@dataclass(frozen=True, slots=True)
class VersionResult:
    """Installed version of a component, compared with the declared one."""

    component: str
    declared: str
    installed: str | None = None
    """Installed version; None if the component cannot read it, or if `error` is set."""
    error: str = ""
    source: str = ""
    """Path of the smoke file, with the line of an error."""

    @property
    def matches(self) -> bool:
        if self.error:
            return False
        return self.installed is None or same_version(self.declared, self.installed)


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """Result of one `check_…` function of a component."""

    component: str
    check: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """Which probes run in an image, and for how long."""

    components: Collection[str] | None = None
    """Components that are probed; None means all."""
    with_checks: bool = False
    """Components also run their checks, and the image is checked as a whole."""
    long_check: str = ""
    """Name of a long check that the components run."""
    seconds: float = PROBE_SECONDS
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """Results of all components of an image."""

    versions: tuple[VersionResult, ...]
    checks: tuple[CheckAnswer, ...]
    seconds: float
    log: Path


@dataclass(frozen=True, slots=True)
class _Verification:
    """The last verification of an image of that name."""

    digest: Digest
    surroundings: str
    """Key of the image without its components, code and texts."""
    components: Mapping[str, list[str]]
    """By component: its declared versions, and keys of its smoke file and its build stage."""


def verify_image(engine: Engine, image: Image, digest: Digest, state: Path) -> None:
    """Verify that the installed versions match the declared ones. Raises BuildError.

    The last verification of each image is recorded under `state`. After a change, only components with
    another declaration, smoke file or build stage are verified, unless the change affects all of them.
    """
    directory = state / "verified" / image.name
    current = _Verification(digest, _surroundings(image), _components(image))
    last = _read(directory / _RECORD)
    if last == current:
        return
    changed = {
        name for name, inputs in current.components.items() if not last or inputs != last.components.get(name)
    }
    if not last or not _is_comparable(image, current, last):
        changed = {*current.components}
    log = directory / "components.log"
    results = run_probes(engine, image, digest, log, ProbeOptions(components=changed))
    if mismatches := [version for version in results.versions if not version.matches]:
        raise BuildError.of(*(mismatch_error(image, digest, version, results.log) for version in mismatches))
    write_whole(directory / _RECORD, json.dumps(asdict(current), indent=2, sort_keys=True) + "\n")


def _is_comparable(image: Image, current: _Verification, last: _Verification) -> bool:
    """Return whether components with the same inputs are equal in both images."""
    if current.digest == last.digest:
        return True
    # Steps of the recipe can install anything, and a tag can move.
    is_fixed = not image.content.run and (isinstance(image.base, BootstrappedBase) or image.base.digest)
    return bool(
        is_fixed
        and current.surroundings == last.surroundings
        and current.components.keys() == last.components.keys()
    )


def run_probes(
    engine: Engine,
    image: Image,
    digest: Digest,
    log: Path,
    options: ProbeOptions = ProbeOptions(),
) -> ProbeResults:
    """Run a container in which components with a smoke file read their version and run their checks."""
    parts = _probed(image, options)
    started = time.monotonic()
    spec = _probe_spec(image, digest, parts, options)
    if spec is None:
        return read_results(parts, (), 0.0, log)
    with engine.container(spec) as container:
        container.start(log)
        outcome = container.wait(options.seconds)
        container.stop(grace=0)
        lines = container.stdout().splitlines()
    seconds_taken = time.monotonic() - started
    end = f"exited with {outcome.exit_code}" if outcome else f"no result within {options.seconds:g} s"
    return _fill_missing(read_results(parts, lines, seconds_taken, log), end)


def long_checks(image: Image) -> tuple[tuple[str, str], ...]:
    """Return the checks that only run if they are named, each as component and name."""
    return tuple(
        (part.component, name)
        for part in image.all_parts
        if part.smoke
        for name in _LONG_CHECK.findall(read_text(part.smoke))
    )


def check_spec(image: Image, digest: Digest, seconds: float) -> ContainerSpec:
    """Return the container in which all components read their version and run their checks."""
    options = ProbeOptions(with_checks=True, seconds=seconds)
    spec = _probe_spec(image, digest, _probed(image, options), options)
    assert spec, "the probes of the image have smoke files"
    return spec


def check_results(image: Image, answers: str, seconds: float, log: Path, end: str) -> ProbeResults:
    """Return the results of the container of `check_spec`; missing results have the error `end`."""
    results = read_results(_probed(image, ProbeOptions(with_checks=True)), answers.splitlines(), seconds, log)
    return _fill_missing(results, end)


def _probed(image: Image, options: ProbeOptions) -> tuple[InstalledComponent, ...]:
    parts: tuple[InstalledComponent, ...] = image.all_parts
    if options.with_checks:
        # Check the files first, because later checks import packages, which can create files.
        parts = (_CONTENTS, *parts, _LIBRARIES, *([_IMPORTS] if image.requirements else ()))
    if options.components is None:
        return parts
    return tuple(part for part in parts if part.component in options.components)


def _probe_spec(
    image: Image, digest: Digest, parts: Iterable[InstalledComponent], options: ProbeOptions
) -> ContainerSpec | None:
    """Return the container that probes components; None if none has a smoke file."""
    probed = tuple(part for part in parts if part.smoke)
    if not probed:
        return None
    arguments = (*(("--checks",) if options.with_checks else ()), "--seconds", str(options.seconds / 2))
    arguments += ("--long", options.long_check) if options.long_check else ()
    files = {f"{_DIRECTORY}/smoke/{part.component}.py": _bytes(part) for part in probed}
    return ContainerSpec(
        image=digest,
        command=(
            "python3",
            f"{_DIRECTORY}/checks.py",
            *arguments,
            *(f"{part.component}={_DIRECTORY}/smoke/{part.component}.py" for part in probed),
        ),
        files={
            **files,
            f"{_DIRECTORY}/checks.py": read_bytes(PROBES / "checks.py"),
            **(_probe_inputs(image) if options.with_checks else {}),
        },
        gpus=options.gpus,
        image_name=image.name,
    )


def read_results(
    parts: Iterable[InstalledComponent], lines: Iterable[str], seconds: float, log: Path
) -> ProbeResults:
    """Parse the output of `probes/checks.py` into results, in the order of the components."""
    versions: dict[str, dict[str, Any]] = {}
    checks: dict[tuple[str, str], CheckAnswer] = {}
    provided: dict[str, dict[str, str]] = {}
    parts = tuple(parts)
    smoke = {part.component: part.smoke for part in parts}
    for fields in map(json.loads, lines):
        component = fields["component"]
        source = f"{smoke[component]}:{fields['line']}" if fields.get("line") else str(smoke[component])
        source = fields.get("source") or source
        if fields.get("outcome") == _NOT_APPLICABLE:
            checks.pop((component, fields["check"]), None)
        elif "check" in fields:
            checks[component, fields["check"]] = _check_answer(fields, source)
        elif "ended" in fields:
            unfinished = [key for key, result in checks.items() if key[0] == component and _is_open(result)]
            for key in unfinished:
                checks[key] = replace(checks[key], reason=fields["ended"])
            if not unfinished:
                versions[component] = {"error": fields["ended"], "source": source}
        else:
            error = fields.get("error", "")
            versions[component] = {"installed": fields.get("installed"), "error": error, "source": source}
            provided[component] = fields.get("provided", {})
    unanswered = {"error": _NO_ANSWER}
    own = (
        VersionResult(
            part.component, part.version, **(versions.get(part.component, unanswered) if part.smoke else {})
        )
        for part in parts
        if part.version or versions.get(part.component, {}).get("error")
    )
    others = (
        VersionResult(name, _as_exact(declared, installed), installed, source=str(part.smoke))
        for part in parts
        for name, declared in part.provides
        if (installed := provided.get(part.component, {}).get(name)) is not None
    )
    return ProbeResults(
        (*own, *others),
        tuple(checks.values()),
        seconds,
        log,
    )


def _as_exact(declared: str, installed: str) -> str:
    """Cut the declared version to the installed one's precision: torch reports CUDA 13.0 for 13.0.3."""
    numbers = declared.split(".")[: len(installed.split("."))]
    return ".".join(numbers)


def same_version(declared: str, installed: str) -> bool:
    """Return whether two versions are equal; the declared one may omit a build tag such as `+cpu`."""
    if declared == installed:
        return True
    try:
        expected, actual = Version(declared), Version(installed)
    except InvalidVersion:
        return False
    return expected == actual or (expected.local is None and expected == Version(actual.public))


def mismatch_error(image: Image, digest: Digest, version: VersionResult, log: Path) -> Diagnostic:
    """Return the error for a component whose installed version is wrong or unreadable."""
    if version.error:
        message = f"cannot read the version of `{version.component}` in image `{image.name}`"
        installed = ("error", version.error)
    else:
        message = f"`{version.component}` in image `{image.name}` does not have the declared version"
        installed = ("installed", version.installed or "")
    facts = (
        ("image", f"{image.name} {digest[:19]}"),
        ("declared", version.declared),
        installed,
        *((("from", version.source),) if version.source else ()),
        ("full log", str(log)),
    )
    return Diagnostic(message, facts=facts)


_NO_ANSWER = "no answer"
_NOT_APPLICABLE = "not applicable"
"""Outcome of a check that can never apply to the image. It is not reported."""


def _is_open(result: CheckAnswer) -> bool:
    return result.outcome is Outcome.FAILED and not result.reason


def _check_answer(fields: Mapping[str, Any], source: str) -> CheckAnswer:
    # A check that has started counts as failed until its result arrives.
    outcome = Outcome.FAILED if fields["outcome"] == "started" else Outcome(fields["outcome"])
    return CheckAnswer(
        fields["component"],
        fields["check"],
        outcome,
        fields.get("reason", ""),
        fields.get("seconds", 0.0),
        source,
    )


def _fill_missing(results: ProbeResults, reason: str) -> ProbeResults:
    """Set the exit of the container as the error of all missing results."""
    return replace(
        results,
        versions=tuple(
            replace(result, error=reason) if result.error == _NO_ANSWER else result
            for result in results.versions
        ),
        checks=tuple(
            replace(result, reason=reason) if _is_open(result) else result for result in results.checks
        ),
    )


def _components(image: Image) -> dict[str, list[str]]:
    keys = {stage.name: stage.key for stage in image.stages}
    return {
        part.component: [
            part.version,
            *map("=".join, part.provides),
            hashlib.sha256(_bytes(part)).hexdigest() if part.smoke else "",
            keys.get(part.component, ""),
        ]
        for part in image.all_parts
    }


def _surroundings(image: Image) -> str:
    content = image.content
    return key_of(
        image.base.reference if isinstance(image.base, BootstrappedBase) else image.base.pinned,
        image.apt,
        [deb.sha256 for deb in image.apt_debs],
        # `layout-wheels` compares the packages that it lays out, and replaces no files of others
        [stage.key for stage in image.stages if stage.name == REQUIREMENTS and not stage.layers],
        image.path,
        image.library_path,
        image.environment,
        [(file.target, file.sha256) for file in content.files],
    )


def _bytes(part: InstalledComponent) -> bytes:
    return read_bytes(part.smoke) if part.smoke else b""


def _probe_inputs(image: Image) -> dict[str, bytes]:
    """Return the libraries and facts of the checks of the whole image, by path in the container."""
    facts = json.loads(read_bytes(_FACTS)) | {"targets": dict(image.gpu_targets)}
    copies = ((packaging, "probe_packaging"), (elftools, "pyelftools/elftools"))
    own = {"own": [file.target for file in image.content.own_files], "allowed": image.content.allowed}
    return {
        f"{_DIRECTORY}/smoke/libraries.json": json.dumps(facts).encode(),
        f"{_DIRECTORY}/smoke/own_files.json": json.dumps(own).encode(),
        f"{_DIRECTORY}/smoke/requirements.json": json.dumps([*map(asdict, image.requirements)]).encode(),
        f"{_DIRECTORY}/smoke/probe_secrets.py": read_bytes(Path(secrets.__file__)),
        **{
            f"{_DIRECTORY}/smoke/{name}/{path.relative_to(directory)}": read_bytes(path)
            for library, name in copies
            for directory in (Path(str(library.__file__)).parent,)
            for path in directory.rglob("*.py")
        },
    }


def _read(record: Path) -> _Verification | None:
    """Return a record; None if it is missing or unreadable, because a verification takes seconds."""
    try:
        verification = _Verification(**parse_json(read_bytes(record)))
    except (OSError, ValueError, TypeError):
        return None
    return verification if isinstance(verification.components, dict) else None
