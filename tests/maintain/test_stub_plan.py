"""Plans of rehearsals: only files with stubs change."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.component import Artifact
from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.python_lock import Package
from bakehouse.errors import Location
from bakehouse.fetch.required_files import required_files
from bakehouse.maintain import rehearsal as rehearse
from bakehouse.maintain import stub_files, stub_plan
from bakehouse.maintain.stub_plan import Rehearsal, StubFile, Stubs
from bakehouse.plan import dockerfile as rendering
from bakehouse.plan.model import BootstrappedBase, Image, InstalledComponent, RegistryBase, Stage
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.util.oci import Sha256
from tests.support import fake_engine, plans
from tests.support.dockerfiles import Instruction, instructions
from tests.support.fake_engine import HOST
from tests.support.trees import templates

DEBIAN = BootstrappedBase("bakehouse/debian:12-0f0f0f0f", "bookworm", ())
FAMILIES = ("mpi-cpu", "pytorch-cpu", "pytorch-1.10-cu113-py38-smp", "pytorch-2.5-cu124-py311-smp2")
SHA = Sha256("ab" * 32)
NOWHERE = Location(Path("component.yaml"), 1, 1)
ABOVE = InstalledComponent("above", "1.0", "")


def package(file: str, size: int = 1000) -> Package:
    name, version = file.removesuffix(".tar.gz").split("-")[:2]
    return Package(name, version, "0" * 64, file, size, NOWHERE)


def stage(*packages: Package, artifacts: tuple[Artifact, ...] = ()) -> Stage:
    return plans.stage(InstalledComponent("part", "1.0", ""), packages, artifacts)


def image(*packages: Package, artifacts: tuple[Artifact, ...] = (), python: str = "3.11") -> Image:
    plain = fake_engine.image(parts=(InstalledComponent("python", python, ""),))
    return plans.changed(
        plain,
        stages=(stage(*packages, artifacts=artifacts),),
        base_part=InstalledComponent("debian", "12", ""),
    )


def stood_in(image: Image, text: str = "", *, real: bool = False) -> list[str]:
    return [need.file for need in stub_plan.required_files(image, {"part": text}, real=real)["part"]]


def rehearsed(image: Image, text: str = "") -> Rehearsal:
    needs = stub_plan.required_files(image, {"part": text})
    stubs = Stubs(
        dict.fromkeys(needs["part"], SHA), dict.fromkeys(stub_plan.required_bases(image), "bases:1")
    )
    return stub_plan.rehearse(image, needs, stubs)


def test_large_wheels_get_stubs_and_small_ones_are_real() -> None:
    small, large = package("small-1-py3-none-any.whl"), package("large-1-py3-none-any.whl", 20_000_001)

    assert stood_in(image(small, large)) == ["large-1-py3-none-any.whl"]


def test_of_a_stage_that_is_heavy_as_a_whole_only_the_smallest_wheels_are_real() -> None:
    heavy = [package(f"heavy{number}-1-py3-none-any.whl", 100_000_000) for number in range(3)]
    small, middling = package("small-1-py3-none-any.whl"), package("middling-1-py3-none-any.whl", 2_000_001)

    assert "middling-1-py3-none-any.whl" not in stood_in(image(small, middling))
    assert "middling-1-py3-none-any.whl" in stood_in(image(*heavy, small, middling))
    assert "small-1-py3-none-any.whl" not in stood_in(image(*heavy, small, middling))


def test_all_packages_are_real_where_that_is_asked() -> None:
    assert stood_in(image(package("large-1-py3-none-any.whl", 30_000_000)), real=True) == []


@pytest.mark.parametrize(
    ("file", "python", "expected"),
    [
        ("one-1-cp311-cp311-manylinux_2_17_x86_64.whl", "3.11", False),
        ("one-1-cp38-cp38-manylinux_2_17_x86_64.whl", "3.8", True),
        ("one-1-cp38-abi3-manylinux_2_17_x86_64.whl", "3.8", False),
        ("one-1-py3-none-manylinux_2_17_x86_64.whl", "3.8", False),
        ("one-1-py2.py3-none-any.whl", "3.8", False),
        ("one-1.tar.gz", "3.8", False),
        ("one-1.tar.gz", "3.11", False),
        ("one-1.tar.gz", "3.13", True),
    ],
)
def test_what_is_compiled_for_a_python_that_is_not_here_gets_a_stub(
    file: str, python: str, expected: bool
) -> None:
    assert bool(stood_in(image(package(file), python=python))) is expected


def test_artifacts_of_vendors_get_stubs_and_those_of_debian_are_real() -> None:
    vendor = Artifact("source", "url", "https://example.org/a.tar.gz", "a.tar.gz", None, NOWHERE)
    debian = Artifact("other", "debian", "metis=5.1.0", "metis.tar.xz", SHA, NOWHERE)

    assert stood_in(image(artifacts=(vendor, debian))) == ["a.tar.gz"]


def test_one_stub_of_a_stage_has_what_the_stage_drops() -> None:
    text = "    finish-layer part 'opt/venv/lib/python3.11/site-packages/torch/test' opt/venv/bin/x\n"
    needs = stub_plan.required_files(
        image(package("a-1-py3-none-any.whl", 30_000_000), package("b-1-py3-none-any.whl", 30_000_000)),
        {"part": text},
    )["part"]

    patterns = ("opt/venv/lib/python3.11/site-packages/torch/test", "opt/venv/bin/x")
    assert [need.dropped for need in needs] == [patterns, ()]


def test_names_of_the_distribution_s_packages_are_read_from_what_is_run() -> None:
    text = 'RUN <<"END"\napt-get install -q -y --no-install-recommends gcc libssl1.1=1.1.1f-1 g++\nEND\n'

    assert stub_plan.apt_names(text) == {"gcc", "libssl1.1=1.1.1f-1", "g++"}


def test_a_rehearsal_has_keys_tags_and_a_base_of_its_own_even_if_all_is_real() -> None:
    real = image(package("small-1-py3-none-any.whl"))
    rehearsal = rehearsed(real)

    assert rehearsal.image.key != real.key
    assert rehearsal.image.stages[0].key != real.stages[0].key
    assert rehearsal.image.base.reference == "bases:1"
    assert rehearsal.reference == f"bakehouse/rehearsal/mpi-cpu:{rehearsal.image.key[:8]}"
    assert rehearsal.real.key == real.key
    assert rehearsal.stubs == ()
    assert rehearsal.is_real("part")


def test_nothing_that_stands_on_a_base_stub_counts_as_real() -> None:
    real = plans.changed(
        image(package("small-1-py3-none-any.whl")), base=RegistryBase("registry/base:1", None)
    )

    assert rehearsed(real).stubs == ("debian",)
    assert not rehearsed(real).is_real("part")


def test_the_key_changes_with_a_stub() -> None:
    real = image(package("large-1-py3-none-any.whl", 30_000_000))
    needs = stub_plan.required_files(real, {})
    bases = dict.fromkeys(stub_plan.required_bases(real), "bases:1")
    keys = {
        stub_plan.rehearse(real, needs, Stubs({needs["part"][0]: Sha256(digest * 64)}, bases)).image.key
        for digest in "ab"
    }

    assert len(keys) == 2


@pytest.mark.parametrize(
    ("provides", "expected"),
    [
        ({"ubuntu": "20.04"}, "3.8"),
        ({"ubuntu": "24.04"}, "3.12"),
        ({"ubuntu": "20.04", "python": "3.10.14"}, "3.10"),
        ({"amazon-linux": "2023"}, "3.11"),
    ],
)
def test_a_base_answers_with_the_python_of_the_real_one(provides: dict[str, str], expected: str) -> None:
    assert stub_plan.python_of(provides) == expected


@pytest.mark.parametrize("name", FAMILIES)
def test_only_checksums_bases_and_labels_differ_from_the_real_dockerfile(name: str, tmp_path: Path) -> None:
    workspace = open_workspace()
    [real_image] = select(workspace, [name]).plan.images
    [rehearsal] = rehearse.prepare([real_image], workspace.templates, DEBIAN, tmp_path)
    directory = tmp_path / "rehearsal" / "images" / name
    real = rendering.render_image(real_image, templates())[0].content.decode()

    written = (directory / "Dockerfile").read_text()

    assert _comparable(written, rehearsal) == _comparable(real, rehearsal)
    assert "rehearsed, not built" in written.splitlines()[0]
    assert 'org.bakehouse.rehearsed="rehearsed, not built"' in written
    [(target, bake)] = json.loads((directory / "docker-bake.json").read_text())["target"].items()
    assert target == real_image.target
    assert bake["tags"] == [rehearsal.reference]
    lock = json.loads((directory / "stubs.lock").read_text())
    assert lock["key"] == real_image.key
    assert {row["stub"] for row in lock["files"]} == {digest for _, digest in rehearsal.files}
    for need, digest in rehearsal.files:
        assert (tmp_path / "rehearsal" / "files" / digest / need.file).is_file()


@pytest.mark.parametrize("name", FAMILIES[:3])
def test_every_file_that_a_step_asks_for_is_one_of_the_feed(name: str, tmp_path: Path) -> None:
    workspace = open_workspace()
    images = select(workspace, [name]).plan.images
    [rehearsal] = rehearse.prepare(images, workspace.templates, DEBIAN, tmp_path)
    paths = [path for path in (tmp_path / "rehearsal" / "images" / name).rglob("*") if path.suffix != ".lock"]
    text = "\n".join(path.read_text() for path in paths if path.is_file() and path.suffix != ".json")
    digests = set(re.findall(r"(?:^|^ *download |--hash=sha256:)([0-9a-f]{64})\b", text, re.MULTILINE))

    assert digests
    assert digests <= {file.sha256 for file in required_files([rehearsal.image]).files}


def _comparable(dockerfile: str, rehearsal: Rehearsal) -> list[Instruction]:
    """Return the instructions without the parts that a rehearsal may change."""
    bases = [reference for _, reference in rehearsal.bases]
    bases += [rehearsal.real.build_base] if rehearsal.real.build_base else []
    base = rehearsal.real.base
    bases += [base.pinned if isinstance(base, RegistryBase) else base.reference]
    normalized = []
    for instruction in instructions(dockerfile):
        rest, bodies = (
            re.sub(r"\b([0-9a-f]{64}|unknown)\b", "SHA256", text)
            for text in (instruction.rest, "\0".join(instruction.heredocs))
        )
        if instruction.word == "FROM":
            words = instruction.rest.split(" ")
            rest = " ".join(["BASE" if words[0] in bases else words[0], *words[1:]])
        if instruction.word != "LABEL":
            normalized.append(Instruction(instruction.word, rest, (bodies,)))
    return normalized


def test_a_need_says_what_it_is_for() -> None:
    need = StubFile(
        "wheel",
        InstalledComponent("pytorch", "2.9.1", "cu128"),
        Path("pytorch"),
        "torch",
        "2.9.1",
        "torch-2.9.1.whl",
    )

    assert need.text == "pytorch 2.9.1: torch-2.9.1.whl"


def test_what_is_compiled_against_a_stub_is_one_too() -> None:
    base = image(package("framework-1-py3-none-any.whl", 30_000_000))
    above = plans.stage(ABOVE, (package("against-1.tar.gz"),))
    stacked = plans.changed(base, stages=(*base.stages, above))
    text = "FROM toolchain AS above\nCOPY --from=part /out/opt/ /opt/\n"

    assert [need.file for need in stub_plan.required_files(stacked, {"above": text})["above"]] == [
        "against-1.tar.gz"
    ]
    assert stub_plan.required_files(stacked, {"above": "FROM toolchain AS above\n"})["above"] == []


def test_an_artifact_that_is_compiled_against_a_stub_is_one_too() -> None:
    base = image(package("framework-1-py3-none-any.whl", 30_000_000))
    extension = Artifact("source", "pypi", "extension==1", "extension-1.tar.gz", SHA, NOWHERE)
    wheel = Artifact("tools", "pypi", "tools==1", "tools-1-py3-none-any.whl", SHA, NOWHERE)
    above = plans.stage(ABOVE, (), (extension, wheel))
    stacked = plans.changed(base, stages=(*base.stages, above))
    text = "FROM toolchain AS above\nCOPY --from=part /out/opt/ /opt/\n"

    assert [need.file for need in stub_plan.required_files(stacked, {"above": text})["above"]] == [
        "extension-1.tar.gz"
    ]
    assert stub_plan.required_files(stacked, {"above": "FROM toolchain AS above\n"})["above"] == []
    assert stub_plan.required_files(stacked, {"above": text}, real=True)["above"] == []


def test_what_a_stub_provides_is_not_real_either() -> None:
    real = image(package("large-1-py3-none-any.whl", 30_000_000))
    real = plans.changed(
        real,
        parts=(
            InstalledComponent("part", "1.0", "", provides=(("cuda", "12.8"),)),
            InstalledComponent("other", "1", ""),
        ),
    )
    rehearsal = rehearsed(real)

    assert [rehearsal.is_real(name) for name in ("part", "cuda", "other")] == [False, False, True]


def test_steps_get_stubs_before_all_else_and_real_files_as_builds_get_them(tmp_path: Path) -> None:
    real = replace(package("small-1-py3-none-any.whl"), sha256=hashlib.sha256(b"small").hexdigest())
    plain = image(real, package("large-1-py3-none-any.whl", 30_000_000))
    project = ProjectSettings(tmp_path, (), cache_directory=tmp_path / "cache")
    cached = project.cache / real.sha256 / real.file
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"small")
    needs = stub_plan.required_files(plain, {"part": ""})
    files = stub_files.make_all(needs["part"], project.state / "rehearsal" / "files")
    [(need, digest)] = files.items()
    rehearsal = stub_plan.rehearse(
        plain, needs, Stubs(files, dict.fromkeys(stub_plan.required_bases(plain), "bases:1"))
    )

    with rehearse.start_downloads([rehearsal], DEBIAN, project, HOST, print) as downloads:
        wheels = [file for file in downloads.required.files if file.kind == "wheel"]
        paths = {file.file: downloads.fetcher.local(file) for file in wheels}

    assert paths == {real.file: cached, need.file: project.state / "rehearsal" / "files" / digest / need.file}
