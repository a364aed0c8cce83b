"""Verification of a built image: the installed versions of all components match the declared ones.

Each component's smoke.py reads its version; `probes/checks.py` runs them all in one container.
"""

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import packaging
from packaging.version import InvalidVersion, Version

from bakehouse.engine.protocol import ContainerSpec, Engine
from bakehouse.errors import BuildError, Diagnostic
from bakehouse.plan.model import Image, InstalledComponent
from bakehouse.util.files import write_whole
from bakehouse.util.oci import Digest

PROBES = Path(__file__).parents[1] / "probes"
ASK_SECONDS = 600.0
_DIRECTORY = "/run/bakehouse"
_CONTENTS = InstalledComponent("contents", "", "", PROBES / "contents.py")
"""Checks of the whole image: each file has one owner, and no temporary files remain."""


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
class ProbeResults:
    """Results of all components of an image."""

    versions: tuple[VersionResult, ...]
    checks: tuple[CheckAnswer, ...]
    seconds: float
    log: Path


def verify_image(engine: Engine, image: Image, digest: Digest, state: Path) -> None:
    """Verify that the installed versions match the declared ones. Raises BuildError.

    The verification is recorded by digest under `state`, and repeated after a change of declarations or smoke
    files.
    """
    record = state / "verified" / f"{digest.removeprefix('sha256:')}.json"
    inputs = _inputs(image.all_parts)
    if _is_recorded(record, inputs):
        return
    results = run_probes(engine, image, digest, log=state / "verified" / image.name / "components.log")
    if mismatches := [version for version in results.versions if not version.matches]:
        raise BuildError(*(mismatch_error(image, digest, version, results.log) for version in mismatches))
    write_whole(record, json.dumps({"asked": inputs}, indent=2, sort_keys=True) + "\n")


def run_probes(
    engine: Engine,
    image: Image,
    digest: Digest,
    *,
    log: Path,
    with_checks: bool = False,
    seconds: float = ASK_SECONDS,
    gpus: int = 0,
) -> ProbeResults:
    """Run a container in which all components with a smoke file read their version and run their checks."""
    parts = (*image.all_parts, _CONTENTS) if with_checks else image.all_parts
    probed = tuple(part for part in parts if part.smoke)
    started = time.monotonic()
    if not probed:
        return read_results(parts, (), 0.0, log)
    options = (*(("--checks",) if with_checks else ()), "--seconds", str(seconds / 2))
    files = {f"{_DIRECTORY}/smoke/{part.component}.py": _bytes(part) for part in probed}
    spec = ContainerSpec(
        image=digest,
        command=(
            *("python3", f"{_DIRECTORY}/checks.py"),
            *options,
            *(f"{part.component}={_DIRECTORY}/smoke/{part.component}.py" for part in probed),
        ),
        files={
            **files,
            f"{_DIRECTORY}/checks.py": (PROBES / "checks.py").read_bytes(),
            **(_packaging() if with_checks else {}),
        },
        gpus=tuple(range(gpus)),
        image_name=image.name,
    )
    with engine.container(spec) as container:
        container.start(log)
        outcome = container.wait(seconds)
        container.stop(grace=0)
        lines = container.stdout().splitlines()
    results = read_results(parts, lines, time.monotonic() - started, log)
    if outcome is None:
        return _cut_short(results, f"no result within {seconds:g} s")
    return _cut_short(results, f"exited with {outcome.exit_code}")


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
        if "check" in fields:
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


def _cut_short(results: ProbeResults, reason: str) -> ProbeResults:
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


def _inputs(parts: Iterable[InstalledComponent]) -> dict[str, list[str]]:
    """Return the other inputs of a verification: declared versions, and checksums of smoke files."""
    return {
        part.component: [
            part.version,
            *map("=".join, part.provides),
            hashlib.sha256(_bytes(part)).hexdigest() if part.smoke else "",
        ]
        for part in parts
    }


def _bytes(part: InstalledComponent) -> bytes:
    return part.smoke.read_bytes() if part.smoke else b""


def _packaging() -> dict[str, bytes]:
    """Return a copy of the library `packaging` for `probes/contents.py`, by path in the container."""
    paths = Path(packaging.__file__).parent.glob("*.py")
    return {f"{_DIRECTORY}/smoke/probe_packaging/{path.name}": path.read_bytes() for path in paths}


def _is_recorded(record: Path, inputs: Mapping[str, list[str]]) -> bool:
    try:
        return bool(json.loads(record.read_text())["asked"] == inputs)
    except (OSError, ValueError, KeyError, TypeError):
        # Missing or unreadable: a new verification takes seconds.
        return False
