"""Invoke tasks of this checkout: `invoke build --images=pytorch-cpu` is `./bake build pytorch-cpu`."""

import functools
from typing import Any, cast

from invoke.collection import Collection
from invoke.context import Context
from invoke.tasks import Task, task

from bakehouse.cli.tasks.collection import GROUPS
from bakehouse.cli.tasks.declare import BakeTask


def _invoke_task(declared: BakeTask) -> Task[Any]:
    @functools.wraps(declared.function)
    def run(_context: Context, **values: Any) -> None:
        declared(**values)

    made = task(
        run,
        name=declared.name,
        positional=list(declared.arguments[:1]),
        iterable=list(declared.iterable),
        help=dict(declared.texts),
        auto_shortflags=False,
    )
    return cast(Task[Any], made)


namespace = Collection(*(_invoke_task(declared) for tasks in GROUPS.values() for declared in tasks))

__all__ = ["namespace"]
