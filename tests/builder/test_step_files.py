"""Mounts of downloaded files in the steps of a Dockerfile."""

import re
from pathlib import Path

import pytest

from bakehouse.builder.step_files import FileSet, add_mounts
from bakehouse.catalog.project import HOME
from bakehouse.fetch.required_files import RequiredFile
from bakehouse.util.oci import Sha256

WHEEL = RequiredFile("wheel", "mpi4py-4.1.2-py3-none-any.whl", Sha256("a1" * 32), 5, "mpi4py==4.1.2")
DEB = RequiredFile("deb", "libc6_2.36_amd64.deb", Sha256("b2" * 32), 5, "pool/libc6_2.36_amd64.deb")
ARCHIVE = RequiredFile("url", "nccl.tar.gz", Sha256("c3" * 32), 5, "https://files.example/nccl.tar.gz")
FILES = {str(file.sha256): (file,) for file in (WHEEL, DEB, ARCHIVE)}
DOCKERFILE = f"""\
FROM base AS debs
RUN --mount=type=bind,from=inputs,source=/debs/list.txt,target=/mnt/debs.txt \\
    --mount=type=secret,id=ca --mount=type=secret,id=mirrors \\
    download-debs /mnt/debs.txt /packages
FROM base AS wheel
RUN --mount=type=bind,from=inputs,source=/requirements.txt,target=/mnt/requirements.txt \\
    --mount=type=secret,id=pip,target=/etc/pip.conf \\
    pip install -r /mnt/requirements.txt
FROM base AS archive
RUN --mount=type=secret,id=mirrors \\
    download {ARCHIVE.sha256} https://files.example/nccl.tar.gz /tmp/nccl.tar.gz
RUN --mount=type=secret,id=apt apt-get update # {ARCHIVE.sha256}
FROM base AS image
COPY --link --from=archive /out/ /
"""


def test_each_downloading_step_mounts_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "debs").mkdir()
    (tmp_path / "debs/list.txt").write_text(
        f"{DEB.sha256} pool/libc6_2.36_amd64.deb\n{'d4' * 32} pool/other.deb\n"
    )
    (tmp_path / "requirements.txt").write_text(f"mpi4py==4.1.2 --hash=sha256:{WHEEL.sha256}\n")

    text, sets = add_mounts(DOCKERFILE, tmp_path, FILES)

    assert [file_set.files for file_set in sets] == [(DEB,), (WHEEL,), (ARCHIVE,)]
    changed = [
        (old, new) for old, new in zip(DOCKERFILE.splitlines(), text.splitlines(), strict=True) if old != new
    ]
    assert [new for _, new in changed] == [
        old.replace("RUN ", f"RUN --mount=type=bind,from={file_set.context},target=/run/bakehouse ")
        for (old, _), file_set in zip(changed, sets, strict=True)
    ]


def test_steps_with_the_same_files_share_a_context(tmp_path: Path) -> None:
    step = f"RUN --mount=type=secret,id=mirrors download {ARCHIVE.sha256} u f\n"

    text, sets = add_mounts(step + step, tmp_path, FILES)

    assert len(sets) == 1
    assert text.count(sets[0].mount) == 2


def test_a_step_that_begins_like_a_step_without_files(tmp_path: Path) -> None:
    step = f"RUN --mount=type=secret,id=mirrors download {ARCHIVE.sha256}"
    longer = f"{step}0"

    text, sets = add_mounts(f"{longer}\n{step}\n", tmp_path, FILES)

    assert text.splitlines() == [longer, step.replace("RUN ", f"RUN {sets[0].mount}")]


def test_the_content_of_a_context(tmp_path: Path) -> None:
    tree = FileSet((DEB, WHEEL)).tree({DEB: tmp_path / "1", WHEEL: tmp_path / "2"})

    assert tree == {
        "index.html": (
            "<!DOCTYPE html><html><body>\n"
            f'<a href="sha256/{DEB.sha256}/{DEB.file}#sha256={DEB.sha256}">{DEB.file}</a><br>\n'
            f'<a href="sha256/{WHEEL.sha256}/{WHEEL.file}#sha256={WHEEL.sha256}">{WHEEL.file}</a><br>\n'
            "</body></html>\n"
        ).encode(),
        f"sha256/{DEB.sha256}/{DEB.file}": tmp_path / "1",
        f"sha256/{WHEEL.sha256}/{WHEEL.file}": tmp_path / "2",
    }


def test_a_step_reads_a_list_that_its_stage_copied(tmp_path: Path) -> None:
    copy = f'COPY <<"END" /tmp/tools.txt\nmpi4py==4.1.2 --hash=sha256:{WHEEL.sha256}\nEND\n'
    step = "RUN --mount=type=secret,id=pip,target=/etc/pip.conf pip install -r /tmp/tools.txt\n"

    _, sets = add_mounts(f"FROM base AS a\n{copy}{step}", tmp_path, FILES)
    _, none = add_mounts(f"FROM base AS a\n{copy}FROM base AS b\n{step}", tmp_path, FILES)

    assert ([file_set.files for file_set in sets], none) == ([(WHEEL,)], ())


@pytest.mark.parametrize("name", ["pytorch-cpu", "pytorch-2.5-cu124-py311-smddp"])
def test_every_downloading_step_of_a_rendered_image_gets_files(name: str) -> None:
    """Files without a known sha256 are an exception, which a remote build refuses."""
    directory = HOME / "images" / name
    lists = [path.read_text() for path in (directory / "inputs").rglob("*.txt")]
    named = re.findall(r"\b[0-9a-f]{64}\b", "\n".join([(directory / "Dockerfile").read_text(), *lists]))
    files = {sha256: (RequiredFile("deb", sha256, Sha256(sha256), 1, ""),) for sha256 in named}

    text, sets = add_mounts((directory / "Dockerfile").read_text(), directory / "inputs", files)

    steps = re.findall(r"^RUN (?:.*\\\n)*.*$", text, re.MULTILINE)
    downloading = [step for step in steps if re.search("id=(?:pip|mirrors)\\b", step)]
    others = [step for step in downloading if "from=bakehouse-files-" not in step]
    assert [step for step in others if "download unknown" not in step] == []
    assert len(downloading) - len(others) >= len(sets) > 5
