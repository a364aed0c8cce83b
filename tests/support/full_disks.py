"""Commands whose disk becomes full: the error that they report, and the next run after the disk has space."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.support.killed_commands import (
    Command,
    differences_of,
    digests_of,
    error_of,
    files_of,
    finish,
    fresh,
    left_of,
    run,
    unclear,
)

_LARGE = 4 * 1024**3
_PAGE = 4096


@dataclass(frozen=True)
class Place:
    """A directory of a command's project that gets a small disk of its own."""

    name: str
    command: Command
    path: str

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.command.name


@dataclass(frozen=True)
class Round:
    """A command that ran with little free space, and then again with enough."""

    command: str
    place: str
    free: int
    """Bytes that it had for new files there."""
    ended_before: bool
    """The space was enough."""
    differences: tuple[str, ...]
    """Omissions of its error, differences from a run with enough space, and leftovers."""
    message: str

    def __str__(self) -> str:
        end = "had enough" if self.ended_before else self.message
        different = ", ".join(self.differences) or "same"
        return f"{self.command} with {self.free} bytes for {self.place} ({end}): {different}"


class SmallDisk:
    """A file system in memory with a size, which is mounted below a directory's content. Needs root."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextlib.contextmanager
    def mounted(self, free: int) -> Iterator["SmallDisk"]:
        """Move the content of the directory to a disk that has `free` bytes more, until the context ends."""
        aside = self.directory.with_name(f"{self.directory.name}.aside")
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.rename(aside)
        self.directory.mkdir()
        options = f"size={_LARGE},mode=755"
        mount = ["mount", "-t", "tmpfs", "-o", options, "bakehouse-campaign", str(self.directory)]
        subprocess.run(mount, check=True)
        try:
            shutil.copytree(aside, self.directory, dirs_exist_ok=True)
            self.resize(self.used() + free)
            yield self
        finally:
            subprocess.run(["umount", str(self.directory)], check=True)
            shutil.rmtree(aside)

    def resize(self, size: int = _LARGE) -> None:
        """Change the size of the disk."""
        pages = max(1, -(-size // _PAGE))
        subprocess.run(["mount", "-o", f"remount,size={pages * _PAGE}", str(self.directory)], check=True)

    def used(self) -> int:
        """Return the used bytes of the disk."""
        return shutil.disk_usage(self.directory).used


def file_places(commands: Sequence[Command]) -> tuple[Place, ...]:
    """Return the places where commands without an engine write."""
    named = {command.name: command for command in commands}
    return (
        Place("report", named["report"], "page"),
        Place("rendered files", named["render"], "images"),
        Place("temporary files", named["update"], "tmp"),
    )


def rounds(places: Sequence[Place], directory: Path, count: int, seed: int) -> Iterator[Round]:
    """Run the command of each place in turn, `count` times in all, on disks with random free space."""
    random, expected, needs = Random(seed), {}, {}
    for place in places:
        project = fresh(place.command, directory)
        with SmallDisk(project / place.path).mounted(_LARGE // 2) as disk:
            before = disk.used()
            result = run(place.command, project, place.command.words)
            assert result.code == 0, result.errors
            finish(place.command, project)
            needs[place.key] = max(disk.used() - before, _PAGE)
            expected[place.key] = digests_of(result.output), files_of(project)
    for number in range(count):
        place = places[number % len(places)]
        free = int(needs[place.key] * random.random())
        project, token = fresh(place.command, directory), f"disk-{seed}-{number}"
        with SmallDisk(project / place.path).mounted(free) as disk:
            struck = run(place.command, project, place.command.words, token)
            finish(place.command, project, token)
            disk.resize()
            again = run(place.command, project, place.command.words, token)
            finish(place.command, project, token)
            digests, files = expected[place.key]
            differences = list(_unclear(struck.code, struck.errors, disk.directory))
            if again.code:
                differences.append(f"the next run failed: {again.errors}")
            elif (printed := digests_of(again.output)) != digests:
                differences.append(f"the next run printed {printed}")
            differences += [
                *differences_of(files_of(project), files),
                *left_of(place.command, token, struck.process, again.process),
            ]
        message = error_of(struck.errors) if struck.code else ""
        yield Round(place.command.name, place.name, free, not struck.code, tuple(differences), message)


def _unclear(code: int, errors: str, directory: Path) -> Iterator[str]:
    """Yield what the error of a full disk lacks."""
    if not code:
        return
    yield from unclear(code, errors)
    if str(directory) not in errors:
        yield f"the error does not name {directory}"
    for text in ("no space left", "free", "hint: "):
        if text not in errors.lower():
            yield f"the error lacks `{text}`"
