"""Declares tasks: their arguments, their errors and the option texts that several tasks share."""

import functools
import gc
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bakehouse.catalog.project import IS_CHECKOUT
from bakehouse.cli import diagnostics
from bakehouse.cli.command_name import as_typed
from bakehouse.errors import BakehouseError, Diagnostic, UsageError
from bakehouse.util import terminal
from bakehouse.util.format import format_count

if TYPE_CHECKING:
    from bakehouse.catalog.project import ProjectSettings
    from bakehouse.plan.workspace import Selection, Workspace
    from bakehouse.sagemaker.launch import JobCallbacks

IMAGES = "names, families or globs of images; default: the project's own; `'*'` means all"
ATTEST = "attach an SBOM and provenance to each digest, without signatures"
PROGRAM = "program"
"""Argument that takes all words after `--`."""
ALL = "all images of the project without a question, if there are more than 20 and none is named"
JSON = "print the report as JSON"
JSON_BUILD = "print progress as JSON lines on standard error and the result as JSON"
BUILDER = "builders of buildx, separated by commas; the available ones share the images; default: `builders`"
FAIL_ON = "wait for the scan of Amazon ECR, and refuse images with findings of this severity, such as HIGH"


_MAX_UNNAMED = 20


failures: list[BakehouseError] = []
"""Errors of images that the current task left out to continue with the others."""


class Exit(SystemExit):
    """Ends a task with an exit code of its own."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.exit_code = code


Context = object
"""The first argument of tasks, which `invoke` needs."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a task."""

    name: str
    """Name of the parameter."""
    kind: type

    @property
    def option(self) -> str:
        """The name after `--`."""
        return self.name.strip("_").replace("_", "-")

    @property
    def takes_value(self) -> bool:
        return self.kind is not bool


@dataclass(frozen=True, slots=True)
class BakeTask:
    """A task: a function, and what a command line has to know about it."""

    name: str
    function: Callable[..., None]
    arguments: tuple[str, ...]
    """Positional arguments, in order; `images` and `components` take any number."""
    iterable: tuple[str, ...]
    """Options that can be given several times."""
    texts: Mapping[str, str]
    """Help texts by option."""

    def get_arguments(self) -> tuple[Argument, ...]:
        """Return all arguments, also the positional ones."""
        return tuple(Argument(name, self._kind(name)) for name in self._defaults)

    @property
    def optional_arguments(self) -> frozenset[str]:
        """Arguments that may be missing."""
        given = {name for name, default in self._defaults.items() if default is not None}
        return frozenset({*given, "images", "components", PROGRAM})

    def __call__(self, **values: object) -> None:
        """Run the task with the given values and the defaults of the others."""
        lists = {name: self._defaults[name] or [] for name in self.iterable}
        self.function(None, **{**self._defaults, **lists, **values})

    @property
    def _defaults(self) -> dict[str, object]:
        """The default of each argument; None without one."""
        _context, *others = inspect.signature(self.function).parameters.values()
        empty = inspect.Parameter.empty
        return {each.name: None if each.default is empty else each.default for each in others}

    def _kind(self, name: str) -> type:
        default = self._defaults[name]
        if name in self.iterable:
            return list
        return str if default is None else type(default)


TASKS: dict[str, BakeTask] = {}
"""The declared tasks by name."""


def bake_task(
    *arguments: str,
    name: str | None = None,
    iterable: Sequence[str] = (),
    help: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., None]], BakeTask]:
    """Declare a task with positional `arguments`; errors end it with their exit code, also under `invoke`."""

    def declare(function: Callable[..., None]) -> BakeTask:
        @functools.wraps(function)
        def run(*values: Any, **options: Any) -> None:
            failures.clear()
            try:
                function(*values, **options)
            except BakehouseError as error:
                failures.append(error)
            finally:
                # Also if the task ends with an exit code of its own
                if mistakes := dict.fromkeys(
                    diagnostic for error in failures for diagnostic in error.diagnostics
                ):
                    diagnostics.write_failure(BakehouseError.of(*mistakes), sys.stderr)
            if failures:
                worst = min(failures, key=lambda error: error.exit_code)
                raise Exit(code=worst.exit_code) from worst

        task_name = name or function.__name__.replace("_", "-")
        made = BakeTask(task_name, run, arguments, tuple(iterable), dict(help or {}))
        TASKS[made.name] = made
        return made

    return declare


def report(line: str) -> None:
    """Print a line of progress."""
    # In one write: lines of concurrent pushes do not mix
    sys.stderr.write(f"{as_typed(line)}\n")
    sys.stderr.flush()


def show(values: object) -> None:
    """Print a report: text as it is, anything else as JSON."""
    text = as_typed(values) if isinstance(values, str) else json.dumps(values, indent=2, default=str) + "\n"
    print(text, end="", flush=True)


def job_callbacks() -> "JobCallbacks":
    """Return functions that print the events of a job on SageMaker to standard error."""
    from bakehouse.sagemaker.launch import JobCallbacks

    return JobCallbacks(
        report=report,
        output=report,
        warn=lambda finding: diagnostics.write_warnings([finding.diagnostic], sys.stderr),
        colour=terminal.in_colour(sys.stderr),
        verbose=terminal.is_verbose(),
    )


def split(images: str) -> list[str]:
    """Return the words of a comma-separated list."""
    return [word for word in images.split(",") if word]


def report_fallback(project: "ProjectSettings") -> None:
    """Report the directory of written files outside a project."""
    if project.is_fallback:
        place = "Bakehouse's checkout" if IS_CHECKOUT else "this directory"
        report(f"using {place}, {project.root}: no project in this directory or above it")


def open_project(images: str | None = None) -> "Workspace":
    """Open the project, and warn of recipes and components with mistakes unless `images` selects them.

    An empty text selects the project's own images, as in `select`; None selects none.
    """
    from bakehouse.plan import workspace

    opened = replace(workspace.open_workspace(), failures=failures)
    # The workspace lives as long as the process, so the garbage collector can skip it
    gc.freeze()
    report_fallback(opened.project)
    needed = () if images is None else workspace.selected_broken(opened, split(images))
    reported = {name for broken in needed for name in broken.components}
    warnings = [
        _left_out(f"recipe `{broken.family}` is", broken.mistakes, f"bake resolve {broken.family}")
        for broken in opened.broken
        if broken not in needed and not broken.components
    ]
    for component in opened.catalog.broken:
        count = sum(component.name in broken.components for broken in opened.broken)
        images_too = f" and {format_count(count, 'image')} that may use it are" if count else " is"
        if component.name not in reported:
            command = f"bake lock {component.name}"
            warnings.append(
                _left_out(f"component `{component.name}`{images_too}", component.mistakes, command)
            )
    diagnostics.write_warnings(warnings, sys.stderr)
    return opened


def select_images(images: str) -> "Selection":
    """Select the images of a comma-separated list of names, families and globs; empty means the project's."""
    from bakehouse.plan.workspace import select

    return select(open_project(images), split(images))


def confirmed(selection: "Selection", images: str, *, all: bool) -> "Selection":
    """Return a selection of few or named images, or of many after a question at a terminal."""
    count = len(selection.recipes)
    if images or all or count <= _MAX_UNNAMED or terminal.asked(f"No image is named. All {count} images?"):
        return selection
    raise UsageError(f"no image is named, and the project has {count}", hint="name images, or add `--all`")


def _left_out(subject: str, mistakes: Sequence[Diagnostic], command: str) -> Diagnostic:
    first, *others = mistakes
    more = f", and {format_count(len(others), 'more mistake')}" if others else ""
    location = replace(first.location, text="") if first.location else None
    hint = f"run `{command}` for all mistakes" if others else first.hint
    return Diagnostic(f"{subject} left out: {first.message}{more}", location, hint=hint)
