"""Bootstrapped base images: made from locked Debian packages, without Debian's tools and without a registry.

Python unpacks the essential packages. BuildKit runs the base's own dpkg, which installs all packages without
a network. Python packs the result as one layer. A base therefore has the same digest on every machine.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NoReturn

from bakehouse.builder import base_layer, prefetch, root_tree
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.deb_file import DebFile
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.catalog.apt_lock import Deb, lock_name
from bakehouse.engine import buildx
from bakehouse.engine.builder_watch import Watch
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.buildkit_events import Event
from bakehouse.engine.buildx_builders import variables_of
from bakehouse.engine.oci_layout import OciLayout
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BuildError
from bakehouse.plan.base_steps import DOCKERFILE, FIRST, FIRST_PACKAGES, OTHERS
from bakehouse.plan.model import BootstrappedBase, RegistryBase
from bakehouse.util.file_lock import exclusive
from bakehouse.util.format import format_bytes, format_count, format_seconds
from bakehouse.util.heartbeat import Heartbeat, heartbeat
from bakehouse.util.oci import architecture_of
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter, detail

_CREATED = "2026-01-01T00:00:00Z"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TARGET = "base"

Get = Callable[[Sequence[Deb], Path], None]
"""Downloads locked packages into a directory, and verifies their sha256."""


def ensure_bases(bases: Iterable[BootstrappedBase | RegistryBase], context: BuildContext) -> None:
    """Make the missing bases of a build, except for bases of a registry."""
    for base in dict.fromkeys(base for base in bases if isinstance(base, BootstrappedBase)):
        ensure_base(
            base,
            engine=context.engine,
            state=context.project.state,
            report=context.progress.report,
            get=partial(prefetch.download_packages, context.downloads),
            builders=context.builders,
        )


def ensure_base(
    base: BootstrappedBase,
    *,
    engine: Engine,
    state: Path,
    report: Reporter,
    get: Get,
    builders: RemoteBuilders | None = None,
) -> None:
    """Make `base` unless the engine has it; `builders` run its step instead of the engine.

    The image appears only when it is complete. Of concurrent runs, one makes it and the others wait. Raises
    BuildError.
    """
    if engine.image(base.reference):
        return
    with ExitStack() as stack:
        with heartbeat(report, "waiting for another run that makes a base"):
            lock = exclusive(
                state / "bootstrap.lock", lambda: report("waiting for another run that makes a base")
            )
            stack.enter_context(lock)
        if not engine.image(base.reference):
            # buildx runs in another directory
            _make(base, state.absolute(), report, get, builders)


def _make(
    base: BootstrappedBase, state: Path, report: Reporter, get: Get, builders: RemoteBuilders | None
) -> None:
    if not base.debs:
        name = lock_name(base.suite, base.platform)
        raise BuildError(
            f"base `{base.reference}` needs a lock of the packages of `{name}`", hint="run `bake lock`"
        )
    began = time.monotonic()
    with private_directory(state) as directory:
        context, exported = directory / "context", directory / "exported.tar"
        with heartbeat(report, "running: download of the base packages"):
            get(base.debs, context / "packages")
        detail(report)(f"base {base.reference}: unpacking {format_count(len(base.debs), 'Debian package')}")
        with heartbeat(report, f"running: unpacking of {base.reference}"):
            _write_context(base, context)
        detail(report)(f"base {base.reference}: installing the packages in a build step")
        _install(base, context, exported, state, report, builders)
        layout = OciLayout(directory / "image")
        with heartbeat(report, f"running: packing of {base.reference}"):
            manifest = layout.add_layer(partial(base_layer.write_layer, exported), _configuration(base))
        size = format_bytes(exported.stat().st_size)
        detail(report)(f"base {base.reference}: {size}; loading")
        with heartbeat(report, f"running: docker load of {base.reference}"):
            layout.load(manifest, [base.reference])
    report(f"base {base.reference}: made in {format_seconds(time.monotonic() - began)}, {size}")


def _write_context(base: BootstrappedBase, context: Path) -> None:
    """Write the files of the build step: the tree of essential packages, all packages, and their order."""
    packages = {deb.name: DebFile(context / "packages" / deb.file) for deb in base.debs}
    essential = root_tree.essential(packages)
    root_tree.write_tree([packages[name] for name in essential], base.platform, context / "tree.tar")
    first = [name for name in FIRST_PACKAGES if name in packages]
    others = [name for name in (*essential, *sorted({*packages}.difference(essential))) if name not in first]
    for path, names in ((FIRST, first), (OTHERS, root_tree.in_order(others, packages))):
        files = (packages[name].path.name for name in names)
        (context / "packages" / path).write_text("".join(f"./{file}\n" for file in files))
    (context / "Dockerfile").write_text(DOCKERFILE)
    target = {"context": str(context), "platforms": [base.platform], "attest": []}
    (context / "docker-bake.json").write_text(json.dumps({"target": {_TARGET: target}}))


def _install(
    base: BootstrappedBase,
    context: Path,
    exported: Path,
    state: Path,
    report: Reporter,
    builders: RemoteBuilders | None,
) -> None:
    """Let BuildKit run the build step, and write its root file system to an archive."""
    beat = Heartbeat(report, f"running: installation of the packages of {base.reference}")

    def export(target: buildx.Target, builder: str, watched: Watch | None) -> None:
        def on_event(event: Event) -> None:
            beat.tick()
            if watched:
                watched.require()

        environment = variables_of(builder) if builder else {}
        options = buildx.BakeOptions(context, state, on_event, environment=environment)
        buildx.export_archive(target, exported, options)

    def bake(targets: Sequence[buildx.Target]) -> dict[str, buildx.BakedImage]:
        [target] = targets
        if builders:
            builders.run(builders.available()[0], partial(export, target))
        else:
            export(target, "", None)
        return {}

    def on_failure(error: ImagesFailed, remaining: Sequence[buildx.Target]) -> NoReturn:
        raise error

    name = lock_name(base.suite, base.platform)
    target = buildx.Target(name, _TARGET, context / "docker-bake.json")
    try:
        buildx.bake_with_retries([target], bake, on_failure, lambda: False, report)
    except BuildError as error:
        cause = error.diagnostics[0]
        reason = cause.message.removeprefix(f"image `{name}` failed to build: ")
        message = f"base `{base.reference}` could not be made: {reason}"
        # The hint of an error with a location refers to the Dockerfile, which is removed
        hint = "" if cause.location else cause.hint
        log = tuple(fact for fact in cause.facts if fact[0] == "log")
        raise BuildError(message, facts=log, tail=cause.tail, hint=hint) from error


def _configuration(base: BootstrappedBase) -> dict[str, object]:
    return {
        "architecture": architecture_of(base.platform),
        "os": "linux",
        "created": _CREATED,
        "config": {"Env": [_PATH], "Cmd": ["bash"], "Labels": {"org.bakehouse.base": base.reference}},
        "history": [{"created": _CREATED, "created_by": f"Debian {base.suite}"}],
    }
