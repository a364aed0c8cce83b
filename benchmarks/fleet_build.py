"""Six images with shared components on an empty engine: one fleet build against six monoliths in turn.

    .venv/bin/python benchmarks/fleet_build.py [--only fleet,export,bump,monoliths,prefix]

The images are recipes in `benchmarks/fleet`. `benchmarks/monoliths` has the same content as single-stage
Dockerfiles with the same versions; the benchmark compares the contents of both. It needs root and
up to 8 GB below `--directory`. Each engine is separate and has only the base image.

- fleet: `./bake build` of all six; again after the monoliths, under the same load of the machine
- monoliths: `docker build --no-cache`, one after another, as on six machines or from six repositories
- prefix: the same without `--no-cache`; equal first steps run once
- export: exports of cached images, all at once, and those with shared layers first
- bump: a component that no other stage builds on gets another build; the six images, and that stage alone

`--short` compares the versions in both forms of the six images, and builds two images of a file each, on the
usual engine.

Ctrl-C ends the benchmark with the measurements so far.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from unittest import mock

from packaging.utils import canonicalize_name, parse_wheel_filename

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bakehouse.builder import base_image, prefetch
from bakehouse.builder import build as building
from bakehouse.builder.build import leaders
from bakehouse.builder.build_inputs import BuildInputs, Downloads, StepNeeds, build_inputs
from bakehouse.builder.progress import Mode, Progress
from bakehouse.builder.timings import BuildTimes, Work
from bakehouse.engine import docker
from bakehouse.engine.buildkit_events import EXPORT, Event, Step
from bakehouse.engine.daemon_paths import DaemonPaths
from bakehouse.errors import BakehouseError
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import required_files
from bakehouse.pipeline.build import build
from bakehouse.plan.model import BootstrappedBase
from bakehouse.plan.workspace import open_workspace, render_images, select
from benchmarks import harness
from benchmarks.cold_engine import ColdEngine, cold_engine
from benchmarks.harness import Measure, Result
from benchmarks.layer_push import cpu_seconds, usual_engine
from benchmarks.local_index import GATEWAY, over_http

HERE = Path(__file__).resolve().parent
START_JOB = harness.ROOT / "recipes" / "components" / "sshd" / "files"
SUITE = "bookworm"
PARTS = ("fleet", "export", "bump", "monoliths", "prefix")


@dataclass(frozen=True)
class Subject:
    """Images that are built, in both forms."""

    recipes: Path
    monoliths: Path
    bumped: str
    """Component that changes."""
    inventory: str
    """Shell script that prints programs and packages with their versions."""

    @property
    def images(self) -> tuple[str, ...]:
        return tuple(sorted(path.stem for path in (self.recipes / "images").glob("*.yaml")))


SIX_IMAGES = Subject(
    HERE / "fleet" / "recipes",
    HERE / "monoliths",
    "hwloc",
    """
python3 --version; ssh -V 2>&1 | cut -d, -f1
/opt/venv/bin/mpirun --version | head -n 1; lstopo-no-graphics --version
basename "$(ls /usr/local/lib/libmetis.so)"
/opt/venv/bin/python -m pip list --disable-pip-version-check --format=freeze | tr _ -
""",
)
SMALL_IMAGES = Subject(
    HERE / "fleet_short" / "recipes",
    HERE / "fleet_short" / "monoliths",
    "shared-file",
    "/opt/venv/bin/python --version; cd /opt; find . -name revision",
)


@dataclass(frozen=True)
class Built:
    """Times of one build in seconds."""

    wall: float
    cpu: float
    """CPU seconds of the engine, its build steps and the calling program."""
    others: float
    """CPU seconds of other programs in the meantime."""
    load: float


@dataclass(frozen=True)
class FleetBuilt(Built):
    """Times of a fleet build."""

    before: float
    """Time before the first step: reading, planning and rendering of recipes, collection of inputs."""
    steps: float
    """Time from the start of the first step to the end of the last step."""
    export: float
    """Time from the end of the last step to the last export."""
    after: float
    """Time of verification."""
    exporting: float
    """Total time of exports, parallel to steps or after them."""
    steps_cpu: float
    """Part of `cpu` until the end of the last step."""
    chain: tuple[str, ...]
    """Longest chain of dependent stages, in order."""
    stages: Mapping[str, float] = field(default_factory=dict)


class Watched(Progress):
    """Recorder of the steps of a build with their times, and of the CPU time at the end of the last step."""

    def __init__(self, cpu: Callable[[], float]) -> None:
        super().__init__(sys.stderr, Mode.LINES)
        self.times = BuildTimes()
        self.cpu = 0.0
        self._used = cpu

    def __call__(self, event: Event, builder: str = "") -> None:
        super().__call__(event, builder)
        self.times.note(event)
        if isinstance(event, Step) and event.completed and event.text != EXPORT and not event.cached:
            self.cpu = self._used()

    def works(self, *, exports: bool) -> list[Work]:
        """Return the exports, or all other steps."""
        every = self.times.works.values()
        ran = (step for step in every if step.started and step.completed and not step.is_cached)
        return [step for step in ran if (step.step.text == EXPORT) == exports]


class Fleet:
    """Copy of the project with recipes that can be changed."""

    def __init__(self, root: Path, subject: Subject = SIX_IMAGES) -> None:
        self.root = root / "fleet"
        self.subject = subject
        shutil.copytree(subject.recipes, self.root / "recipes")
        shutil.copy(subject.recipes.parent / "pyproject.toml", self.root)

    def build(self, engine: ColdEngine) -> FleetBuilt:
        """Run `bake build` of all images in this process, and record the times of its steps."""
        watched = Watched(engine.cpu)
        marks: list[float] = []

        def call() -> None:
            marks.append(time.time())
            workspace = open_workspace(self.root)
            build(select(workspace, self.subject.images), say, progress=watched)
            marks.append(time.time())

        # The check of the disk counts images that are cached as if they were to be made anew
        with asking(engine), mock.patch.object(building, "expected_bytes", return_value=0):
            taken, cpu = measured(engine, call)
        steps, exports = watched.works(exports=False), watched.works(exports=True)
        first, last = min(map(started, steps)), max(map(completed, steps))
        stages = by_stage(steps)
        last_export = max(map(completed, exports))
        return FleetBuilt(
            **asdict(taken),
            before=first - marks[0],
            steps=last - first,
            export=last_export - last,
            after=marks[1] - last_export,
            exporting=covered([(started(export), completed(export)) for export in exports]),
            steps_cpu=watched.cpu - cpu,
            chain=self.longest(stages),
            stages=stages,
        )

    def longest(self, stages: Mapping[str, float]) -> tuple[str, ...]:
        """Return the longest chain of stages of all images."""
        chains: list[tuple[float, tuple[str, ...]]] = []
        for image in self.subject.images:
            needs = needed((self.root / "images" / image / "Dockerfile").read_text())
            chains += [chain(name, needs, stages) for name in needs if name != "image"]
        return max(chains)[1] if chains else ()

    def bump(self, number: int) -> None:
        """Change the build of the component, and render the images again."""
        path = self.root / "recipes" / "components" / self.subject.bumped / "component.yaml"
        text, count = re.subn(r'revision: "\d+"', f'revision: "{number}"', path.read_text())
        assert count == 1
        path.write_text(text)
        workspace = open_workspace(self.root)
        render_images(workspace, select(workspace, self.subject.images).plan, lambda _: None)

    def export(self, engine: ColdEngine, *waves: Sequence[str]) -> Built:
        """Export images with cached steps again, one call for each wave."""
        engine.docker(
            "image", "rm", "--force", *engine.docker("images", "--quiet", "bakehouse/fleet-*").split()
        )

        def call() -> None:
            for wave in waves:
                files = [f"--file=images/{image}/docker-bake.json" for image in wave]
                command(["docker", "buildx", "bake", "--provenance=false", *files, *wave], engine, self.root)

        return measured(engine, call)[0]

    def stage(self, engine: ColdEngine, name: str, inputs: BuildInputs) -> Built:
        """Build one stage alone, keeping only its cache."""
        image = next(
            image for image in self.subject.images if f" AS {name}\n" in self.dockerfile(image).read_text()
        )
        command_line = [
            "docker",
            "buildx",
            "build",
            "--provenance=false",
            "--output=type=cacheonly",
            "--target",
            name,
        ]
        command_line += ["--build-arg", "SOURCE_DATE_EPOCH=1767225600"]
        command_line += [*secrets(inputs), str(self.dockerfile(image).parent)]
        return measured(engine, lambda: command(command_line, engine))[0]

    def dockerfile(self, image: str) -> Path:
        return self.root / "images" / image / "Dockerfile"


def measured(engine: ColdEngine, call: Callable[[], object]) -> tuple[Built, float]:
    """Return the time of a build, and the CPU time of the engine before it."""
    load, before = os.getloadavg()[0], engine.cpu()
    spent = harness.spent(call)
    used = engine.cpu() - before + spent.cpu
    return Built(spent.wall, used, max(0.0, spent.machine - used), load), before


def monolith(
    engine: ColdEngine, monoliths: Path, image: str, base: str, inputs: BuildInputs, *, cache: bool
) -> Built:
    """Run `docker build` of one hand-written Dockerfile."""
    command_line = ["docker", "build", "--tag", f"monolith/{image}", "--build-arg", f"BASE={base}"]
    command_line += [] if cache else ["--no-cache"]
    command_line += [*secrets(inputs), "--build-context", f"start-job={START_JOB}"]
    command_line += ["--file", str(monoliths / image / "Dockerfile"), str(monoliths)]
    return measured(engine, lambda: command(command_line, engine))[0]


def command(arguments: Sequence[str], engine: ColdEngine, directory: Path = HERE) -> None:
    result = subprocess.run(
        arguments, cwd=directory, env=engine.environment, capture_output=True, text=True, check=False
    )
    if result.returncode:
        sys.exit(f"`{' '.join(arguments)}` failed:\n{result.stderr[-4000:]}")


def secrets(inputs: BuildInputs) -> list[str]:
    """Return the machine's pip and apt settings as Bakehouse passes them to build steps."""
    arguments = [f"--build-arg={name}={value}" for name, value in inputs.arguments.items()]
    return [f"--secret=id={name},src={path}" for name, path in inputs.secrets.items()] + arguments


@contextlib.contextmanager
def asking(engine: ColdEngine) -> Iterator[None]:
    """Make calls of this process use that engine and its downloads."""
    names = {"DOCKER_HOST", "BAKEHOUSE_CACHE"} & engine.environment.keys()
    variables = {name: engine.environment[name] for name in names}
    with mock.patch.dict(os.environ, variables):
        yield


@contextlib.contextmanager
def supplied(engine: ColdEngine, fleet: Fleet) -> Iterator[BuildInputs]:
    """Yield the inputs for build steps of that engine."""
    project = open_workspace(fleet.root).project
    gateway = engine.docker("network", "inspect", "bridge", "--format", GATEWAY).strip()
    with asking(engine), over_http(gateway) as environment:
        inputs = build_inputs(project, say, StepNeeds(suites=(SUITE,)), environment=environment)
        with inputs as files:
            yield files


def inventory(engine: ColdEngine, reference: str, script: str) -> list[str]:
    """Return the programs and Python packages of an image with their versions."""
    arguments = ("run", "--rm", "--network", "none", "--entrypoint", "sh", reference, "-c", script)
    return sorted(engine.docker(*arguments).split("\n"))


def started(work: Work) -> float:
    return work.started or 0.0


def completed(work: Work) -> float:
    return work.completed or 0.0


def covered(spans: Sequence[tuple[float, float]]) -> float:
    """Return the total time that at least one span covers."""
    total, end = 0.0, 0.0
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


def by_stage(works: Sequence[Work]) -> dict[str, float]:
    """Return the seconds of each stage's steps; final stages are listed by image names."""
    seconds: dict[str, float] = {}
    for work in works:
        if work.step.text.startswith(("LINK ", "FROM ")) or not work.step.stage:
            continue
        name = work.step.stage
        name = f"{name}: {'+'.join(sorted(work.images))}" if name == "image" else name
        seconds[name] = round(seconds.get(name, 0.0) + work.seconds(0.0), 2)
    return seconds


def needed(dockerfile: str) -> dict[str, set[str]]:
    """Return the stages that each stage of a Dockerfile builds on."""
    needs: dict[str, set[str]] = {}
    name = ""
    for line in dockerfile.splitlines():
        if match := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            name = match[2]
            needs[name] = {match[1]} & needs.keys()
        taken = re.findall(r"^COPY .*--from=(\S+)|--mount=type=bind,from=([^, ]+)", line)
        needs.get(name, set()).update(needs.keys() & {stage for pair in taken for stage in pair})
    return needs


def chain(
    name: str, needs: Mapping[str, set[str]], seconds: Mapping[str, float]
) -> tuple[float, tuple[str, ...]]:
    """Return the longest time to the end of a stage, and the stages of that path."""
    before = max((chain(need, needs, seconds) for need in needs[name]), default=(0.0, ()))
    return before[0] + seconds.get(name, 0.0), (*before[1], name)


def bases(fleet: Fleet) -> list[str]:
    """Return the references of the base images, bootstrapped if the engine lacks them."""
    workspace = open_workspace(fleet.root)
    references: list[str] = []
    images = select(workspace, fleet.subject.images).plan.images
    with contextlib.closing(docker.connect()) as engine, open_fetcher(workspace.project, say) as fetcher:
        get = partial(prefetch.download_packages, Downloads(required_files(images), fetcher))
        for base in dict.fromkeys(image.base for image in images):
            assert isinstance(base, BootstrappedBase)
            base_image.ensure_base(base, engine=engine, state=workspace.project.state, report=say, get=get)
            references.append(base.reference)
    return references


def shared(fleet: Fleet) -> list[str]:
    """Return a sentence for each kind of component: shared by all images, or in one image only."""
    images = select(open_workspace(fleet.root), fleet.subject.images).plan.images
    users: dict[str, list[str]] = {}
    for image in images:
        for stage in image.stages:
            users.setdefault(f"{stage.name} {stage.part.version}", []).append(image.name)
    everywhere = [name for name, members in users.items() if len(members) == len(images)]
    own = [f"{', '.join(members)}: {name}" for name, members in users.items() if len(members) < len(images)]
    return [f"All {len(images)} share {', '.join(everywhere)}.", f"In addition, {'; '.join(own)}."]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Run:
    """Run the whole benchmark by parts, and keep intermediate results."""

    def __init__(
        self,
        fleet: Fleet,
        directory: Path,
        only: Sequence[str],
        rounds: int,
        start: Callable[[Path], AbstractContextManager[ColdEngine]] = cold_engine,
    ) -> None:
        self.fleet, self.directory, self.only, self.rounds = fleet, directory, only, rounds
        self.start = start
        self.subject = fleet.subject
        self.bases = bases(fleet)
        self.fleets: list[FleetBuilt] = []
        self.monoliths: dict[str, Built] = {}
        self.prefix: dict[str, Built] = {}
        self.bumped: list[FleetBuilt] = []
        self.alone: list[Built] = []
        self.exports: dict[str, list[Built]] = {}
        self.chain: Built | None = None
        self.disk: dict[str, int] = {}
        self.contents: dict[str, list[str]] = {}
        self.differences: list[str] = []

    @contextlib.contextmanager
    def engine(self) -> Iterator[ColdEngine]:
        with self.start(self.directory) as engine:
            engine.copy_in(self.bases)
            yield engine

    def everything(self) -> None:
        with self.engine() as engine:
            self.build_fleet(engine)
            self.contents = {
                image: self.inventory(engine, f"bakehouse/{image}:latest") for image in self.subject.images
            }
            if "export" in self.only:
                self.export(engine)
            if "bump" in self.only:
                self.bump(engine)
        with self.engine() as engine, supplied(engine, self.fleet) as inputs:
            self.chain = self.fleet.stage(engine, self.fleets[0].chain[-1], inputs)
            say(f"the longest chain alone: {self.chain.wall:.1f} s")
        if "monoliths" in self.only:
            self.build_monoliths()
            if "fleet" in self.only:
                with self.engine() as engine:
                    self.build_fleet(engine)
        if "prefix" in self.only:
            with self.engine() as engine, supplied(engine, self.fleet) as inputs:
                for image in self.subject.images:
                    self.prefix[image] = monolith(
                        engine, self.subject.monoliths, image, self.bases[0], inputs, cache=True
                    )
                    say(f"{image}, with a prefix: {self.prefix[image].wall:.1f} s")
                self.disk["monoliths with a prefix"] = engine.disk()

    def inventory(self, engine: ColdEngine, reference: str) -> list[str]:
        return inventory(engine, reference, self.subject.inventory)

    def build_fleet(self, engine: ColdEngine) -> None:
        self.fleets.append(self.fleet.build(engine))
        self.disk["fleet"] = engine.disk()
        say(f"fleet: {self.fleets[-1].wall:.1f} s")

    def build_monoliths(self) -> None:
        with self.engine() as engine, supplied(engine, self.fleet) as inputs:
            for image in self.subject.images:
                self.monoliths[image] = monolith(
                    engine, self.subject.monoliths, image, self.bases[0], inputs, cache=False
                )
                say(f"{image}, a monolith: {self.monoliths[image].wall:.1f} s")
                monolith_files, fleet_files = (
                    self.inventory(engine, f"monolith/{image}"),
                    self.contents[image],
                )
                self.differences += [
                    f"{image}, ours alone: {file}" for file in fleet_files if file not in monolith_files
                ]
                self.differences += [
                    f"{image}, monolith alone: {file}" for file in monolith_files if file not in fleet_files
                ]
                self.disk["monoliths"] = self.disk.get("monoliths", 0) + engine.disk()
                engine.docker("image", "rm", "--force", f"monolith/{image}")
                engine.prune()

    def export(self, engine: ColdEngine) -> None:
        """Measure the cost of unpacking images with shared layers at the same time."""
        first = leaders(select(open_workspace(self.fleet.root), self.subject.images).plan.images)
        others = [image for image in self.subject.images if image not in first]
        ways: dict[str, tuple[Sequence[str], ...]] = {
            "all at once": (self.subject.images,),
            "in two waves": (sorted(first), others),
        }
        for _ in range(2):
            for name, waves in ways.items():
                self.exports.setdefault(name, []).append(self.fleet.export(engine, *waves))
                taken = self.exports[name][-1]
                say(f"export {name}: {taken.wall:.1f} s, {taken.cpu:.1f} s of CPU")

    def bump(self, engine: ColdEngine) -> None:
        with supplied(engine, self.fleet) as inputs:
            for number in range(self.rounds):
                self.fleet.bump(2 * number + 2)
                self.bumped.append(self.fleet.build(engine))
                self.fleet.bump(2 * number + 3)
                self.alone.append(self.fleet.stage(engine, self.subject.bumped, inputs))
                times = (
                    f"{self.bumped[-1].wall:.1f} s, {self.subject.bumped} alone {self.alone[-1].wall:.1f} s"
                )
                say(f"{self.subject.bumped} bumped, six images: {times}")
        self.fleet.bump(1)

    def result(self) -> Result:
        fleet_wall = statistics.mean(build.wall for build in self.fleets)
        ours_cpu = statistics.mean(build.cpu for build in self.fleets)
        measures: list[Measure] = []
        if self.monoliths:
            monolith_wall = sum(build.wall for build in self.monoliths.values())
            measures += [
                Measure(
                    "P1", "six images, cold: ours, six monoliths", fleet_wall, monolith_wall, most_ratio=0.13
                ),
                Measure(
                    "",
                    "the same in CPU seconds",
                    ours_cpu,
                    sum(build.cpu for build in self.monoliths.values()),
                ),
            ]
        if self.prefix:
            monolith_wall = sum(build.wall for build in self.prefix.values())
            measures.append(Measure("", "monoliths with the same first steps", fleet_wall, monolith_wall))
        measures += self.limits()
        if len(self.exports) == 2:
            waves, once = (
                statistics.mean(export.wall for export in exports)
                for exports in reversed(self.exports.values())
            )
            measures.append(Measure("", "cached images exported in two waves, all at once", waves, once))
        if self.bumped:
            six, alone = (
                statistics.median(build.wall for build in builds) for builds in (self.bumped, self.alone)
            )
            measures.append(
                Measure(
                    "P2",
                    f"{self.subject.bumped} bumped: six images, {self.subject.bumped} alone",
                    six,
                    alone,
                    most_ratio=1.2,
                )
            )
            for part, what in PARTS_OF_A_BUILD:
                measures.append(
                    Measure(
                        "",
                        f"of that {what}",
                        statistics.median(getattr(build, part) for build in self.bumped),
                    )
                )
        return Result(measures, self.rounds_told(), self.notes(), self.same())

    def same(self) -> list[str]:
        """Return a sentence about the contents of both forms; differences are in the notes."""
        if not self.monoliths or self.differences:
            return []
        contents = {f"{image}: {line}" for image, lines in self.contents.items() for line in lines}
        return [f"Both sides have the same programs and packages: {len(contents)}."]

    def limits(self) -> list[Measure]:
        """Compare the build with the lower bound from dependent stages and the number of cores."""
        cores = harness.machine().cores
        export = statistics.mean(build.export for build in self.fleets)
        busy = statistics.mean(build.steps_cpu for build in self.fleets) / cores
        left = cores - statistics.mean(build.others / build.wall for build in self.fleets)
        longest = self.chain.wall if self.chain else 0.0
        fleet_wall = statistics.mean(build.wall for build in self.fleets)
        measures = [
            Measure(
                "P1",
                "ours without export, the limit",
                fleet_wall - export,
                max(longest, busy),
                most_ratio=1.1,
            ),
            Measure("", "the longest chain of stages, alone", longest),
            Measure("", "CPU seconds of the steps ÷ cores", busy),
            Measure("", "the same ÷ the cores that other programs left", busy * cores / left),
        ]
        for part, what in PARTS_OF_A_BUILD:
            measures.append(
                Measure("", f"of ours {what}", statistics.mean(getattr(build, part) for build in self.fleets))
            )
        return measures

    def rounds_told(self) -> dict[str, object]:
        return {
            "fleet": self.fleets,
            "monoliths": self.monoliths,
            "monoliths with a prefix": self.prefix,
            "exports": self.exports,
            "bumped": self.bumped,
            "bumped alone": self.alone,
            "chain alone": self.chain,
            "disk": self.disk,
            "contents": self.contents,
            "differences": self.differences,
        }

    def notes(self) -> list[str]:
        lines = shared(self.fleet)
        lines.append(f"The longest chain: {', '.join(self.fleets[0].chain)}.")
        if self.monoliths:
            differences = "; ".join(self.differences) or "none"
            lines.append(
                f"Differences in programs and packages between ours and the monoliths: {differences}."
            )
        others = [round(build.others) for build in self.fleets]
        lines.append(f"Other programs used {others} s of CPU while the fleet was built.")
        lines += [f"Disk, {name}: {harness.quantity(size, 'bytes')}." for name, size in self.disk.items()]
        return lines


PARTS_OF_A_BUILD = (
    ("before", "before the first step"),
    ("steps", "steps"),
    ("export", "export after the last step"),
    ("after", "declared compared with installed"),
    ("exporting", "any export, also during steps"),
)


def require_same_packages(image: str, rendered: Path, monolith: Path) -> str:
    """Compare the Python packages of a rendered image with those of its Dockerfile by hand."""
    lock = json.loads((rendered / "lock.json").read_text())
    ours = {str(canonicalize_name(package["name"])): package["version"] for package in lock["python"]}
    for archive in lock["archives"]:
        if archive["file"].endswith(".whl"):
            name, version, _, _ = parse_wheel_filename(archive["file"])
            ours[str(name)] = str(version)
    copied = re.findall(r"^COPY (\S+\.txt) ", (monolith / "Dockerfile").read_text(), re.M)
    texts = [(monolith.parent / name).read_text() for name in copied]
    by_hand = {
        str(canonicalize_name(name)): version
        for text in texts
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.M)
    }
    return harness.require_same(f"Python packages in {image}", ours, by_hand)


def compare_six_images(directory: Path, subject: Subject = SIX_IMAGES) -> list[str]:
    """Plan and render the six images, and compare their versions with the Dockerfiles by hand."""
    fleet = Fleet(directory, subject)
    workspace = open_workspace(fleet.root)
    plan = select(workspace, fleet.subject.images).plan
    render_images(workspace, plan, lambda _: None)
    same: list[str] = []
    for image in plan.images:
        monolith = fleet.subject.monoliths / image.name
        same.append(require_same_packages(image.name, fleet.root / "images" / image.name, monolith))
        sources = dict(re.findall(r"(hwloc|metis)=([\d.]+\d)", (monolith / "Dockerfile").read_text()))
        versions = {stage.name: stage.part.version for stage in image.stages if stage.name in sources}
        same.append(harness.require_same(f"sources in {image.name}", versions, sources))
    return same


class UsualEngine(ColdEngine):
    """The engine of this machine, for short runs. Nothing is removed from it but images of the benchmark."""

    @property
    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def cpu(self) -> float:
        return cpu_seconds((usual_engine(), os.getpid()))

    def disk(self) -> int:
        return 0

    def copy_in(self, references: Sequence[str]) -> None:
        """Do nothing: it has them."""

    def prune(self) -> None:
        """Do nothing: the build cache is that of other builds too."""


def short(options: argparse.Namespace) -> Result:
    with tempfile.TemporaryDirectory() as directory:
        same = compare_six_images(Path(directory) / "six")
        fleet = Fleet(Path(directory), SMALL_IMAGES)
        start = contextlib.nullcontext(UsualEngine(DaemonPaths(Path(directory))))
        run = Run(fleet, Path(directory), ("bump", "monoliths"), 1, lambda _: start)
        # Not cached from an earlier run
        fleet.bump(time.time_ns())
        try:
            run.everything()
        finally:
            for image in fleet.subject.images:
                harness.remove_images(image)
        if run.differences:
            sys.exit(f"the two sides differ: {'; '.join(run.differences)}")
        result = run.result()
        return replace(result, same=(*same, *result.same))


def measure(options: argparse.Namespace) -> Result:
    if options.short:
        return short(options)
    only = options.only.split(",")
    if unknown := set(only) - set(PARTS):
        sys.exit(f"--only knows {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        run = Run(Fleet(Path(directory)), options.directory, only, options.rounds)
        try:
            run.everything()
        except (KeyboardInterrupt, BakehouseError) as error:
            say(f"ended before all was measured: {error!r}")
            if not run.fleets:
                raise
        return run.result()


def ended(*_: object) -> None:
    """Treat SIGTERM as Ctrl-C: stop the engines and print the measurements."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, ended)
    parser = harness.parser(__doc__, rounds=3)
    parser.add_argument("--only", default=",".join(PARTS), help="the parts to measure, with commas")
    parser.add_argument(
        "--directory", type=Path, default=Path("/var/tmp"), help="where the engines' data goes"
    )
    harness.run("fleet_build", parser, measure)
