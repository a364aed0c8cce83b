"""`./bake`: invoke's command line, with answers for what people mistype."""

import errno
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Any

from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.parser.argument import Argument
from invoke.program import Program
from invoke.tasks import Task

from bakehouse import __version__
from bakehouse.catalog.project import HOME
from bakehouse.cli import diagnostics
from bakehouse.errors import BakehouseError, Diagnostic, UsageError
from bakehouse.util.suggest import suggestion

_MACHINES = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EISDIR)
"""What no code of ours can help: rights, disks, and files that stand where folders should."""
_UNKNOWN_TASK = re.compile(r"No idea what '([^']+)' is!")


class Bake(Program):
    """invoke's program over this project's tasks.py."""

    def __init__(self) -> None:
        super().__init__(version=__version__, name="bake", binary="bake")

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:
        words = help_first(argv if argv and len(argv) > 1 else ["bake", "--list"])
        try:
            self.create_config()
            # invoke turns byte code off, and every start would compile everything anew.
            self.parse_core([words[0], "--write-pyc", "--search-root", str(HOME), *words[1:]])
            self.parse_collection()
            self.core.unparsed = with_named_values(self.core.unparsed, self.collection)
            self._parse(self.collection)
            self._clean_up_parse()
            self.update_config()
            self.execute()
        except Exit as end:
            sys.exit(end.code)
        except BakehouseError as error:
            diagnostics.write_failure(error, sys.stderr)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            sys.exit(130)
        except BrokenPipeError:
            # The reader, such as `head`, has seen enough; Python's own flush at exit must not say so either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        except OSError as error:
            if error.errno not in _MACHINES:
                raise
            diagnostics.write_failure(BakehouseError(_of_this_machine(error)), sys.stderr)
            sys.exit(BakehouseError.exit_code)

    def _parse(self, collection: Collection) -> None:
        unparsed = list(self.core.unparsed)
        try:
            self.parse_tasks()
        except ParseError as error:
            raise UsageError(mistake(error, unparsed, collection)) from error
        except ValueError as error:
            # invoke makes numbers of options' values, and says nothing of its own where they are none.
            value = str(error).rpartition(": ")[2].strip("'")
            task = next((word for word in unparsed if word in collection.task_names), "")
            hint = f"`./bake {task} --help` names the options that take numbers"
            raise UsageError(Diagnostic(f"`{value}` is no number", hint=hint)) from error

    def _clean_up_parse(self) -> None:
        """What invoke does after parsing: it prints help here, also for what is no task."""
        try:
            self.parse_cleanup()
        except ParseError as error:
            name = str(self.core[0].args.help.value)
            hint = suggestion(name, self.collection.task_names) or "`./bake --list` lists the tasks"
            raise UsageError(Diagnostic(f"there is no task `{name}`", hint=hint)) from error


def with_named_values(words: Sequence[str], collection: Collection) -> list[str]:
    """Name the values after a task, since invoke takes one at most: `build a b` is `build --images=a,b`.

    A task's `images` takes as many as there are, or none.
    """
    found: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        found.append(word)
        position += 1
        if word not in collection.task_names:
            continue
        task, values, given = collection[word], [], len(found)
        seen: set[str] = set()
        while position < len(words) and words[position] not in collection.task_names:
            word = words[position]
            position += 1
            if not word.startswith("-"):
                _check_value(word, task)
                values.append(word)
                continue
            _check_option(word, task)
            found.append(word)
            option, equals, value = word.partition("=")
            argument = _argument(option, task)
            if argument is None or not argument.takes_value:
                continue
            if argument.name in seen and argument.kind is not list:
                hint = "it takes one value"
                raise UsageError(Diagnostic(f"`{option}` of task `{task.name}` stands twice", hint=hint))
            seen.add(str(argument.name))
            if not equals:
                value = words[position] if position < len(words) else ""
                found.append(value)
                position += 1
            if not value:
                raise UsageError(Diagnostic(f"`{option}` of task `{task.name}` needs a value"))
            if argument.name == "images":
                _check_value(value, task)
        found += _named(values, task, found[given:])
    return found


def _named(values: list[str], task: "Task[Any]", given: Sequence[str]) -> list[str]:
    names = [str(one.name) for one in task.get_arguments() if one.takes_value]
    if "images" in names:
        if any(word.startswith("--images") or word == "-i" for word in given):
            return values
        return [f"--images={','.join(values)}"]
    named = [
        f"--{name}={value}"
        for name, value in zip(names, values, strict=False)
        if name in ("image", "part", "other")
    ]
    return named + values[len(named) :]


def mistake(error: ParseError, words: Sequence[str], collection: Collection) -> Diagnostic:
    """What a person mistyped, with the nearest task or option."""
    unknown = _UNKNOWN_TASK.search(str(error))
    word = unknown[1] if unknown else ""
    tasks = [name for name in words if name in collection.task_names]
    if word and (not tasks or words[0] == word):
        hint = suggestion(word, collection.task_names) or "`./bake --list` lists the tasks"
        return Diagnostic(f"there is no task `{word}`", hint=hint)
    if word:
        hint = f"`./bake {tasks[-1]} --help` shows what it takes"
        return Diagnostic(f"task `{tasks[-1]}` takes no `{word}`", hint=hint)
    text = str(error).strip().splitlines()[0].rstrip(".")
    where = f" {tasks[-1]}" if tasks else ""
    return Diagnostic(text[:1].lower() + text[1:], hint=f"`./bake{where} --help` shows how it is called")


def _of_this_machine(error: OSError) -> Diagnostic:
    reason = (error.strerror or str(error)).lower()
    # Of two files the second is the one that has its name for good.
    path = error.filename2 or error.filename
    if path is None:
        return Diagnostic(f"this machine doesn't let us go on: {reason}")
    told = os.fsdecode(path)
    named = ((name, os.environ.get(name, "")) for name in ("BAKEHOUSE_STATE", "BAKEHOUSE_CACHE"))
    hint = next((f"{name} is `{value}`" for name, value in named if value and told.startswith(value)), "")
    return Diagnostic(f"can't use `{told}`: {reason}", hint=hint)


def help_first(words: Sequence[str]) -> list[str]:
    """`bake build --help` as invoke wants it: `bake --help build`."""
    if len(words) > 2 and not words[1].startswith("-") and {"--help", "-h"} & set(words[2:]):
        return [words[0], "--help", words[1]]
    return list(words)


def _check_option(word: str, task: "Task[Any]") -> None:
    option = word.split("=")[0]
    names = [name for one in task.get_arguments() for name in one.names if name]
    known = [f"--{name.replace('_', '-')}" if len(name) > 1 else f"-{name}" for name in names]
    if option not in known and option.replace("--no-", "--") not in known:
        long = [name for name in known if name.startswith("--")]
        name = task.name.replace("_", "-")
        hint = suggestion(option, long) or f"`./bake {name} --help` lists its options"
        raise UsageError(Diagnostic(f"task `{name}` has no option `{option}`", hint=hint))


def _check_value(value: str, task: "Task[Any]") -> None:
    """An empty name is none, and no name means all: nobody wants that of a variable that isn't set."""
    if not value.strip(","):
        message = f"`{value}` names nothing that task `{task.name}` could take"
        raise UsageError(Diagnostic(message, hint="is a variable in the command empty?"))


def _argument(option: str, task: "Task[Any]") -> Argument | None:
    arguments: list[Argument] = task.get_arguments()
    return next((one for one in arguments if option.lstrip("-") in one.names), None)


def main() -> None:
    """The entry point of the wrapper script."""
    # What cleans up at Ctrl-C also cleans up when a CI system ends the job.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    Bake().run(["bake", *sys.argv[1:]])
