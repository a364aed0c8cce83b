"""Forecast of a rebuild, from the recorded times and sizes of earlier builds on this machine."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bakehouse.analysis.size_log import load_size
from bakehouse.builder.build_log import Build, load_builds
from bakehouse.catalog.apt_lock import Deb
from bakehouse.plan.model import BootstrappedBase, Image, StageKey
from bakehouse.util.format import format_bytes, format_seconds


@dataclass(frozen=True, slots=True)
class LockChange:
    """An image before and after its locks changed."""

    before: Image
    after: Image

    @property
    def has_new_base(self) -> bool:
        return self.before.base != self.after.base

    @property
    def kept_stages(self) -> frozenset[str]:
        """Names of the stages that do not change."""
        keys = {stage.key for stage in self.before.stages}
        return frozenset(stage.name for stage in self.after.stages if stage.key in keys)

    @property
    def changed_steps(self) -> tuple[str, ...]:
        """Titles of the base and the stages to build again."""
        base = (f"base {self.after.base_part.title}",) if self.has_new_base else ()
        system = ("packages of the image",) if self.before.apt_debs != self.after.apt_debs else ()
        kept = self.kept_stages
        return (*base, *system, *(stage.title for stage in self.after.stages if stage.name not in kept))


@dataclass(frozen=True, slots=True)
class Forecast:
    """Work of a rebuild; None for values that no earlier build shows."""

    download: int
    """Bytes of the new packages."""
    seconds: float | None
    push: int | None
    """Upper limit: layers with the same content are not pushed again."""

    @property
    def text(self) -> str:
        build = "unknown: no build of them is recorded"
        if self.seconds is not None:
            build = f"about {format_seconds(self.seconds)}"
        push = "unknown: run `bake sizes` before an update"
        if self.push is not None:
            push = f"at most {format_bytes(self.push)}"
        return f"download {format_bytes(self.download)}; build {build}; push {push}"


def changed_images(before: Iterable[Image], after: Iterable[Image]) -> tuple[LockChange, ...]:
    """Return the images whose build key changed."""
    earlier = {image.name: image for image in before}
    pairs = (LockChange(earlier[image.name], image) for image in after if image.name in earlier)
    return tuple(change for change in pairs if change.before.key != change.after.key)


def forecast(changes: Iterable[LockChange], state: Path) -> Forecast:
    """Return the expected work to build the changed images and to push them."""
    changes = tuple(changes)
    return Forecast(_new_bytes(changes), _seconds(changes, load_builds(state)), _push(changes, state))


def _new_bytes(changes: Iterable[LockChange]) -> int:
    """Return the bytes of packages that the changed images did not have before."""
    files: dict[str, int] = {}
    for change in changes:
        known = {sha256 for sha256, _ in _files(change.before)}
        files |= {sha256: size for sha256, size in _files(change.after) if sha256 not in known}
    return sum(files.values())


def _files(image: Image) -> Iterable[tuple[str, int]]:
    debs: tuple[Deb, ...] = image.debs
    packages = (package for stage in image.stages for package in (*stage.wheels, *stage.sdists))
    return (
        *((deb.sha256, deb.bytes) for deb in debs),
        *((package.sha256, package.bytes) for package in packages),
    )


def _seconds(changes: Iterable[LockChange], builds: Iterable[Build]) -> float | None:
    """Return the time in which the steps to repeat last ran; parallel steps count once.

    A new base adds the longest time before the first step, because bases are created there.
    """
    kept = {change.before.name: change.kept_stages for change in changes}
    needs_base = any(change.has_new_base and _is_made_here(change.after) for change in changes)
    latest: dict[tuple[str, str, frozenset[str]], tuple[str, float, float]] = {}
    lead = 0.0
    seen: set[str] = set()
    for build in builds:
        steps = [step for step in build.steps if not step.cached and not kept.keys().isdisjoint(step.images)]
        if steps:
            lead = max(lead, min(step.started for step in steps))
        for step in steps:
            images = frozenset(name for name in step.images if name in kept)
            seen |= images
            if not all(re.sub("-(?:debs|wheels)$", "", step.stage) in kept[name] for name in images):
                position = (step.stage, step.position, images)
                latest[position] = (build.started, step.started, step.started + step.seconds)
    if not seen.issuperset(kept):
        return None
    intervals: dict[str, list[tuple[float, float]]] = {}
    for started, begin, end in latest.values():
        intervals.setdefault(started, []).append((begin, end))
    return sum(map(_union, intervals.values())) + (lead if needs_base else 0.0)


def _is_made_here(image: Image) -> bool:
    return isinstance(image.base, BootstrappedBase)


def _union(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of time that intervals cover."""
    total, until = 0.0, 0.0
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def _push(changes: Iterable[LockChange], state: Path) -> int | None:
    """Return the stored bytes of the parts to build again; parts that images share count once."""
    parts: dict[tuple[str, StageKey | str], int] = {}
    for change in changes:
        size = load_size(change.before.name, change.before.key, state)
        if size is None:
            return None
        keys: Mapping[str, StageKey] = {stage.name: stage.key for stage in change.before.stages}
        kept = change.kept_stages
        for part in size.parts:
            if part.name not in kept:
                parts[part.name, keys.get(part.name, change.before.base.reference)] = part.stored
    return sum(parts.values())
