"""Verification of a built image: the installed versions of all components match the declared ones.

Each component's smoke.py reads its version; `probes/checks.py` runs all of them in one container.
"""

import json
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import lru_cache
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
from bakehouse.plan.model import Image, InstalledComponent
from bakehouse.util.files import read_bytes, read_text
from bakehouse.util.hashing import bytes_digest, key_of
from bakehouse.util.oci import Digest

PROBES = Path(__file__).parents[1] / "probes"
PROBE_SECONDS = 600.0
_DIRECTORY = "/run/bakehouse"
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
    part: str = ""
    """The component whose smoke file reads the version."""

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


def verify_image(engine: Engine, image: Image, digest: Digest, state: Path) -> None:
    """Verify that the installed versions match the declared ones. Raises BuildError."""
    log = state / "verified" / image.name / "components.log"
    results = run_probes(engine, image, digest, log)
    if mismatches := [version for version in results.versions if not version.matches]:
        raise BuildError.of(*(mismatch_error(image, digest, version, results.log) for version in mismatches))


def versions_key(image: Image) -> str:
    """Return the key of the check of the versions: what is declared, and the programs that read it."""
    declared, spec = probe_of(image, ProbeOptions())
    return key_of(declared, spec and (spec.command, {p: bytes_digest(c) for p, c in spec.files.items()}))


def run_probes(
    engine: Engine, image: Image, digest: Digest, log: Path, options: ProbeOptions = ProbeOptions()
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


def checked_parts(image: Image) -> tuple[InstalledComponent, ...]:
    """Return the components and the checks of the whole image that have a program."""
    return tuple(part for part in _probed(image, ProbeOptions(with_checks=True)) if part.smoke)


def probe_of(image: Image, options: ProbeOptions) -> tuple[object, ContainerSpec | None]:
    """Return the declared versions that probes compare, and the container that runs these probes alone."""
    parts = _probed(image, options)
    declared = [(part.component, part.version, part.provides) for part in parts]
    return declared, _probe_spec(image, Digest(""), parts, options)


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
            **{
                path: content
                for part in probed
                if options.with_checks
                for path, content in _inputs(image, part)
            },
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
            part.component,
            part.version,
            part=part.component,
            **(versions.get(part.component, unanswered) if part.smoke else {}),
        )
        for part in parts
        if part.version or part.smoke
    )
    others = (
        VersionResult(
            name, _as_exact(declared, installed), installed, source=str(part.smoke), part=part.component
        )
        for part in parts
        for name, declared in part.provides
        if (installed := provided.get(part.component, {}).get(name)) is not None
    )
    return ProbeResults((*own, *others), tuple(checks.values()), seconds, log)


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


def _bytes(part: InstalledComponent) -> bytes:
    return read_bytes(part.smoke) if part.smoke else b""


def _inputs(image: Image, part: InstalledComponent) -> Iterator[tuple[str, bytes]]:
    """Yield the libraries and facts that a check of the whole image reads, by path in the container."""
    directory = f"{_DIRECTORY}/smoke"
    if part is _CONTENTS:
        own = {"own": [file.target for file in image.content.own_files], "allowed": image.content.allowed}
        yield f"{directory}/own_files.json", json.dumps(own).encode()
        yield f"{directory}/probe_secrets.py", read_bytes(Path(secrets.__file__))
    if part is _LIBRARIES:
        facts = json.loads(read_bytes(_FACTS)) | {"targets": dict(image.gpu_targets)}
        yield f"{directory}/libraries.json", json.dumps(facts).encode()
    if part is _IMPORTS:
        yield f"{directory}/requirements.json", json.dumps([*map(asdict, image.requirements)]).encode()
    if part in (_CONTENTS, _LIBRARIES, _IMPORTS):
        library, name = (
            (elftools, "pyelftools/elftools") if part is _LIBRARIES else (packaging, "probe_packaging")
        )
        root = Path(str(library.__file__)).parent
        for path in sorted(root.rglob("*.py")):
            yield f"{directory}/{name}/{path.relative_to(root)}", _kept_bytes(path)


@lru_cache(256)
def _kept_bytes(path: Path) -> bytes:
    """Return the content of a file of an installed library, which does not change while this process runs."""
    return read_bytes(path)
