"""Reader of `smoke` in a recipe: the user's own smoke test."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from bakehouse.catalog.user_files import CODE_DIRECTORY
from bakehouse.errors import Location
from bakehouse.util.yaml_fields import Fields

USER_CODE = "user_code"
"""Name of the smoke check."""
SCRIPT = "script"
LAUNCHERS = ("torchrun", "mpirun", SCRIPT)
"""Programs that start the ranks; `script` starts the entry point once on each host."""
_MAX_HOSTS, _MAX_PROCESSES, _MAX_SECONDS = 8, 64, 86_400
_SECONDS = 600
CHANNEL_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}")
"""Channel names of SageMaker, except those that name another directory."""
CHANNEL_NAME_HINT = "use at most 64 letters, digits and `._-`"


@dataclass(frozen=True, slots=True)
class UserSmoke:
    """A job that runs the user's code. It is a test, not content: build keys do not cover it."""

    entry_point: str
    """Path below /opt/ml/code."""
    hosts: int
    processes: int
    """Ranks on each host."""
    launcher: str
    """One of `LAUNCHERS`; empty if the components of the image determine it."""
    hyperparameters: tuple[tuple[str, str], ...]
    channels: tuple[tuple[str, Path], ...]
    """Directories of the input channels."""
    expect: str
    """Text that the log must contain."""
    timeout: int
    """Seconds."""
    location: Location

    def starter(self, launchers: Collection[str], *, starts_torchrun: bool) -> str:
        """Return one of `LAUNCHERS` for an image with some launchers."""
        if self.launcher or self.hosts == self.processes == 1:
            return self.launcher or SCRIPT
        return default_launcher(launchers, starts_torchrun=starts_torchrun)


def toolkit_starts_torchrun(training_module: str | None) -> bool:
    """Return whether the toolkit of a SAGEMAKER_TRAINING_MODULE starts torchrun: only PyTorch's does."""
    return (training_module or "").startswith("sagemaker_pytorch_container")


def default_launcher(launchers: Collection[str], *, starts_torchrun: bool) -> str:
    """Return the one of `LAUNCHERS` that starts several ranks in an image with some launchers."""
    if "torchrun" in launchers and (starts_torchrun or "mpirun" not in launchers):
        return "torchrun"
    return "mpirun" if "mpirun" in launchers else SCRIPT


def read_smoke(
    fields: Fields, directory: Path, entry_point: str | None, copied: Iterable[str]
) -> UserSmoke | None:
    """Read `smoke` of a recipe in `directory`.

    `entry_point` is the entry point of `code`, and `copied` are the paths of all files that the recipe copies
    into the image.
    """
    child = fields.child("smoke", "`smoke`")
    if child is None:
        return None
    script = child.text("entry_point", entry_point or "")
    hosts = _count(child, "hosts", 1, _MAX_HOSTS)
    processes = _count(child, "processes", 1, _MAX_PROCESSES)
    launcher = child.choice("launcher", LAUNCHERS, LAUNCHERS[0]) if child.has("launcher") else ""
    hyperparameters = tuple((name.text, value.text) for name, value in child.text_pairs("hyperparameters"))
    channels = _channels(child)
    expect = child.text("expect")
    timeout = _count(child, "timeout", _SECONDS, _MAX_SECONDS)
    child.finish()
    if not script:
        hint = "name a script below /opt/ml/code, or set `entry_point` in `code`"
        child.report("`smoke` has no `entry_point`", child.location, hint=hint)
    elif launcher == SCRIPT and processes > 1:
        message = "launcher `script` starts one process on each host"
        child.report(message, child.place("launcher"), hint="remove `processes`, or use another launcher")
    code = [path for path in copied if path.startswith(f"{CODE_DIRECTORY}/")]
    # Without copied code, a step or the base adds it.
    if script and code and f"{CODE_DIRECTORY}/{script}" not in code and not fields.has("run"):
        child.report(f"the image contains no `{CODE_DIRECTORY}/{script}`", child.place("entry_point"))
    return UserSmoke(
        entry_point=script,
        hosts=hosts,
        processes=processes,
        launcher=launcher,
        hyperparameters=hyperparameters,
        channels=tuple((name, directory / path) for name, path in channels),
        expect=expect,
        timeout=timeout,
        location=child.location,
    )


def _channels(fields: Fields) -> list[tuple[str, str]]:
    """Read the directories of channels, relative to the recipe."""
    channels = []
    for name, path in fields.text_pairs("channels"):
        if not CHANNEL_NAME.fullmatch(name.text):
            fields.report(f"`{name.text}` is not a valid channel name", name.location, hint=CHANNEL_NAME_HINT)
        elif not path.text or path.text.startswith("/"):
            message = f"channel `{name.text}` must be a directory relative to the recipe's directory"
            fields.report(message, path.location)
        else:
            channels.append((name.text, path.text))
    return channels


def _count(fields: Fields, key: str, default: int, most: int) -> int:
    """Read a whole number from 1 to `most`."""
    count = fields.number(key, default)
    if 1 <= count <= most:
        return count
    fields.report(f"`{key}` must be from 1 to {most:,}", fields.place(key))
    return default
