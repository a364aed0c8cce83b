"""Invoke tasks of this checkout: `invoke build --images=pytorch-cpu` is `./bake build pytorch-cpu`."""

from bakehouse.cli.tasks.collection import namespace

__all__ = ["namespace"]
