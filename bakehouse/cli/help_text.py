"""Help texts of `bake` and its commands."""

import inspect
from collections.abc import Mapping, Sequence

from bakehouse.cli.command_line import PLACEHOLDERS, option_name, options, usage
from bakehouse.cli.tasks.declare import Argument, BakeTask

DAILY = (
    *("init", "lock", "render", "build", "smoke", "run", "release", "uri", "estimator", "explain", "doctor"),
    "demo",
)
"""The most common commands, in the order of their use."""
_HEAD = (
    "Build, test and publish container images for training jobs.",
    "",
    "Usage: bake COMMAND [ARGUMENTS] [OPTIONS]",
)
_OPTIONS = (
    "Options:",
    "  --help     show this help, or that of the command",
    "  --verbose  print everything that is otherwise left out or summarised",
    "  --version  show the version",
)
_TYPES = {int: "N", float: "NUMBER", str: "TEXT", list: "TEXT"}


def daily(groups: Mapping[str, Sequence[BakeTask]]) -> str:
    """Return the most common commands in their order, and how to list the others."""
    by_name = {task.name: task for tasks in groups.values() for task in tasks}
    lines = [*_HEAD, "", "From a repository to a job:", *_commands([by_name[name] for name in DAILY])]
    lines += ["", *_OPTIONS]
    lines += ["", f"`bake help --all` lists all {len(by_name)} commands; `bake help COMMAND` explains one."]
    return "\n".join(lines) + "\n"


def overview(groups: Mapping[str, Sequence[BakeTask]]) -> str:
    """Return all commands by purpose."""
    width = max(len(task.name) for tasks in groups.values() for task in tasks)
    lines = [*_HEAD]
    for group, tasks in groups.items():
        lines += ["", f"{group}:", *_commands(tasks, width)]
    lines += ["", *_OPTIONS]
    lines += ["", "`bake help COMMAND` explains one. Names of images may be globs."]
    return "\n".join(lines) + "\n"


def _commands(tasks: Sequence[BakeTask], width: int = 0) -> list[str]:
    width = width or max(len(task.name) for task in tasks)
    return [f"  {task.name.ljust(width)}  {_summary(task)}" for task in tasks]


def command_help(task: BakeTask) -> str:
    """Return the usage, description, examples and options of a command."""
    description, examples = _parts(task)
    lines = [f"Usage: {usage(task)}", "", *description]
    arguments = [(PLACEHOLDERS[name].strip("[]."), task.texts[name]) for name in task.arguments]
    if arguments:
        lines += ["", "Arguments:", *_rows(arguments)]
    rows = [(_option(argument), help_of(argument, task)) for argument in options(task)]
    if rows:
        lines += ["", "Options:", *_rows(sorted(rows))]
    if examples:
        lines += ["", "Examples:", *(f"  {line}" for line in examples)]
    return "\n".join(lines) + "\n"


def help_of(argument: Argument, task: BakeTask) -> str:
    """Return the help text of an option."""
    return task.texts.get(argument.option) or task.texts[argument.name]


def _summary(task: BakeTask) -> str:
    return _parts(task)[0][0].rstrip(".")


def _parts(task: BakeTask) -> tuple[list[str], list[str]]:
    """Return the description and the examples, which are the last paragraph of the docstring."""
    paragraphs = (inspect.getdoc(task.function) or "").split("\n\n")
    description = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs[:-1])
    return description.splitlines(), paragraphs[-1].splitlines()


def _option(argument: Argument) -> str:
    if not argument.takes_value:
        return option_name(argument)
    return f"{option_name(argument)} {_TYPES.get(argument.kind, 'TEXT')}"


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"  {name.ljust(width)}  {text}" for name, text in rows]
