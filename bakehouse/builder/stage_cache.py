"""Build cache in a registry: one reference for each stage, with the key of the stage as its tag.

Builders read and write it with the logins of this machine, which buildx passes on. A build that cannot use it
continues without it.
"""

import contextlib
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakehouse.builder.build_steps import CACHE_EXPORT, BuildStep, StepKey, part_of, read_steps
from bakehouse.builder.code_copies import code_directory
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine import buildx, daemon_info
from bakehouse.errors import PublishError
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.registry import destination
from bakehouse.registry.client import Repository
from bakehouse.registry.http_errors import RegistryError
from bakehouse.util.files import read_text
from bakehouse.util.oci import check_names
from bakehouse.util.terminal import Reporter

_KEY = re.compile(r"[0-9a-f]{64}")
_POLICY = RetryPolicy(attempts=2, timeout=10.0)


@dataclass
class StageCache:
    """A repository of the results of stages."""

    reference: str
    """Host and name of the repository."""
    project: ProjectSettings
    keys: set[StepKey]
    """Keys of the stages in the repository."""
    _steps: dict[str, tuple[BuildStep, ...]] = field(default_factory=dict)
    _written: set[StepKey] = field(default_factory=set)
    """Keys of the stages that running builds write and successful builds wrote."""
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False)

    @contextlib.contextmanager
    def extended(self, targets: Sequence[buildx.Target]) -> Iterator[list[buildx.Target]]:
        """Yield targets that read the stages in the repository, and one target that writes each other stage.

        Concurrent builds write each stage once. If a build fails, a later one writes its stages.
        """
        readers = [
            replace(target, cache_from=(*target.cache_from, *self._sources(target.name)))
            for target in targets
        ]
        with self._lock:
            writers = {key: writer for reader in readers for key, writer in self._writers(reader)}
            self._written |= writers.keys()
        try:
            yield [*readers, *writers.values()]
        except BaseException:
            with self._lock:
                self._written -= writers.keys()
            raise

    def _sources(self, image: str) -> list[str]:
        ends = (step.key for step in stage_ends(self._of_image(image)))
        return [f"type=registry,ref={self.reference}:{key}" for key in ends if key in self.keys]

    def _writers(self, target: buildx.Target) -> Iterator[tuple[StepKey, buildx.Target]]:
        """Yield targets that end with a stage that is not in the repository."""
        if target.part_of:
            return
        text = target.dockerfile or read_text(self._directory(target.name) / "Dockerfile")
        for step in stage_ends(self._of_image(target.name)):
            if step.key not in self.keys | self._written:
                cache = f"type=registry,ref={self.reference}:{step.key},{CACHE_EXPORT},ignore-error=true"
                name = f"bakehouse-stage-{step.key[:16]}"
                yield step.key, part_of(target, text, step, name=name, cache_to=cache)

    def _of_image(self, name: str) -> tuple[BuildStep, ...]:
        if name not in self._steps:
            directory = self._directory(name)
            dockerfile = read_text(directory / "Dockerfile")
            code = code_directory(self.project.output, name)
            self._steps[name] = read_steps(dockerfile, directory, code)
        return self._steps[name]

    def _directory(self, name: str) -> Path:
        return self.project.images / name


def stage_ends(steps: Sequence[BuildStep]) -> tuple[BuildStep, ...]:
    """Return the last step of each stage; its key is the key of the stage."""
    return tuple({step.stage: step for step in steps}.values())


def open_cache(
    project: ProjectSettings, reference: str, report: Reporter, *, remote: bool
) -> StageCache | None:
    """Return the build cache in a repository; None, with a warning, if it cannot be used.

    Raises PublishError for an invalid name, UsageError for an unknown registry.
    """
    if not remote and not daemon_info.inspect().containerd_store:
        report(f"the build cache `{reference}` is not used: the engine has no containerd store")
        return None
    repository = _repository(project, reference)
    try:
        tags = _tags(repository)
    except RegistryError as error:
        report(f"the build cache `{reference}` is not used: {error.answer}")
        return None
    except PublishError as error:
        report(f"the build cache `{reference}` is not used: {error.diagnostics[0].message}")
        return None
    keys = {StepKey(tag) for tag in tags}
    return StageCache(f"{repository.registry.host}/{repository.name}", project, keys)


def remove_unused(project: ProjectSettings, reference: str, used: Collection[StepKey]) -> int:
    """Remove unused stages from a build cache, and return their number.

    Raises PublishError if the registry fails or does not delete.
    """
    repository = _repository(project, reference)
    removed = 0
    try:
        keys = [tag for tag in _tags(repository) if _KEY.fullmatch(tag)]
        # A manifest is deleted with all of its tags.
        kept = {repository.digest_of(key) for key in keys if key in used}
        for key in keys:
            digest = None if key in used else repository.digest_of(key)
            if digest and digest not in kept:
                repository.delete(digest)
                removed += 1
    except RegistryError as error:
        raise PublishError(
            f"cannot remove stages from the build cache `{reference}`",
            facts=(("answer", error.answer),),
            hint="let a lifecycle policy of the registry expire them" if error.status == 405 else "",
        ) from error
    return removed


def _repository(project: ProjectSettings, reference: str) -> Repository:
    selected, _, name = reference.partition("/")
    check_names(selected, name)
    return Repository(destination.registries(project, selected)[0], name, _POLICY)


def _tags(repository: Repository) -> tuple[str, ...]:
    """Return the tags of a repository; none if it does not exist."""
    try:
        return repository.tags()
    except RegistryError as error:
        if error.is_repository_missing:
            return ()
        raise
