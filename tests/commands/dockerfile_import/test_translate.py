"""Commands that are lifted out of a Dockerfile, those that are kept as they are, and where these run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse.commands.dockerfile_import.account import Fate
from bakehouse.commands.dockerfile_import.translate import find_context
from bakehouse.errors import RecipeError
from tests.commands.dockerfile_import.translated_dockerfile import Translated
from tests.support.errors import raised

Translate = Callable[[str], Translated]
METIS = "http://glaros.dtc.umn.edu/gkhome/fetch/sw/metis/metis-5.1.0.tar.gz"
FOREIGN = "write a component, or add the files to the project"
NO_SECRETS = (
    "build steps of a recipe get no secrets; run this before the build, and name its files in `files`"
)
SECRET = "it contains a secret, which everybody who pulls the image could read"
NEEDS = "it needs files of line 2, which is not in the recipe"


@pytest.mark.parametrize(
    "text",
    [
        "{ echo a; echo b; } > /etc/a",
        "echo x | tee /etc/f",
        "! test -e /f",
        "MSG=$(bash x.sh); CODE=$?; exit $CODE",
        "if [ -f x ]; then ./x; fi",
        "for i in 1 2; do echo $i; done",
        "a || b",
        "sleep 9 &",
        "(cd /tmp; touch x)",
        "pip install tqdm>=4",
        "pip install tqdm || true",
        "f() { pip install x; }; f",
        "[[ -f x ]] && apt-get install y",
        'case "$X" in a) pip install y;; esac',
        "echo 'a && b; c' > /etc/a && sh -c 'mkdir -p /data && touch \"/data/x y\"'",
        "cd $(mktemp -d) && make",
        "while read x; do echo $x; done < /etc/passwd",
        "apt-get install -y )",
    ],
)
def test_what_is_no_list_of_plain_commands_is_kept_whole(text: str, translated: Translate) -> None:
    result = translated(f"FROM debian:12\nRUN {text}\n")

    [step] = result.steps
    assert step.removeprefix("set +e\n") == text
    assert (result.proposal.apt, result.proposal.requirements) == ({}, {})


@pytest.mark.parametrize(
    "option",
    [
        "--index-strategy unsafe-best-match",
        "--prerelease allow",
        "--no-deps",
        "--pre",
        "--target /opt/x",
        "--unknown value",
        "-f https://wheels.example/",
        "-i https://x.example/simple",
        "--only-binary :all:",
    ],
)
@pytest.mark.parametrize("program", ["pip", "uv pip", "python3 -m pip"])
def test_an_installation_with_another_option_is_kept_whole(
    program: str, option: str, translated: Translate
) -> None:
    result = translated(f"FROM debian:12\nRUN {program} install {option} idna\n")

    assert result.steps == [f"{program} install {option} idna"]
    assert result.proposal.requirements == {}


@pytest.mark.parametrize(
    ("lines", "apt", "requirements"),
    [
        ("RUN apt-get update -qq && apt-get install -yq --no-install-recommends git", "git", ""),
        ("RUN --mount=type=cache,target=/root/.cache pip install -U --no-cache-dir pip tqdm", "", "tqdm"),
        ("ENV DEBIAN_FRONTEND=noninteractive\nRUN DEBIAN_FRONTEND=x apt-get install git", "git", ""),
        ("RUN <<EOF\nset -e\napt-get update  # lists\napt-get install -y git\nEOF", "git", ""),
        ("RUN bash -c 'apt-get update && apt-get install -y git'", "git", ""),
        ('RUN ["apt-get", "install", "-y", "git"]', "git", ""),
        ('RUN ["/bin/bash", "-c", "apt-get update && apt-get install -y git"]', "git", ""),
        ("RUN yes | apt-get install git", "git", ""),
        ("ARG V=4.67\nRUN pip install tqdm==${V} && rm -rf /tmp/x", "", "tqdm==4.67"),
        ("ARG P='git vim'\nRUN apt-get install $P", "git vim", ""),
        ("RUN apt-get install -y python3 python3-pip && ln -s /usr/bin/python3 /usr/bin/python", "", ""),
        ("RUN mkdir -p /var/run/sshd && apt-get install -y openssh-server && ssh-keygen -A", "", ""),
        ("COPY requirements.txt /tmp/\nRUN pip install -r /tmp/requirements.txt", "", ""),
        ("COPY --from=ghcr.io/astral-sh/uv:0.5 /uv /bin/\nRUN uv pip install --system tqdm", "", "tqdm"),
        ("RUN pip install 'git+https://x.example/l@v1#egg=l[a]&subdirectory=s'", "",
         "l[a] @ git+https://x.example/l@v1#subdirectory=s"),
    ],
)  # fmt: skip
def test_what_is_recognised_as_a_whole_is_lifted(
    lines: str, apt: str, requirements: str, translated: Translate
) -> None:
    result = translated(f"FROM debian:12\n{lines}\n")

    assert [*result.proposal.apt] == apt.split()
    assert [*result.proposal.requirements] == ([requirements] if requirements else [])
    assert result.steps == []
    assert [row for row in result.table if row.fate is Fate.UNTRANSLATED] == []


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        ("RUN apt-get install -y git && mkdir /a && echo b > /c", ["mkdir /a &&\necho b > /c"]),
        ("RUN apt-get update && apt-get install -y x.deb", ["apt-get update && apt-get install -y x.deb"]),
        ("WORKDIR /app\nRUN touch x", ["mkdir -p /app && cd /app\ntouch x"]),
        ("ARG A='x y'\nRUN echo $A > /f", ["export A='x y'\necho $A > /f"]),
        ("ENV A=1\nRUN echo $A > /f\nENV A=2", ["export A=1\necho $A > /f"]),
        ("ENV A=1\nARG A=2\nRUN echo $A > /f", ["export A=2\necho $A > /f"]),
        ("ARG A=2\nENV A=1\nRUN echo $A > /f", ["echo $A > /f"]),
        ("RUN echo $A > /f\nENV A=2", ["unset A\necho $A > /f"]),
        ("ENV A=1\nRUN echo $A > /f\nENV A=2\nENV A=3", ["export A=1\necho $A > /f"]),
        ("RUN cd /tmp && pip install tqdm && touch x", ["cd /tmp &&\ntouch x"]),
        ("ARG C=1\nCOPY <<E /a\nx $B$C\nE", ['cat > /a <<"END"\nx 1\nEND']),
        ("COPY <<'E' /a\nx $B\nE", ['cat > /a <<"END"\nx $B\nEND']),
        ("RUN cat <<E > /a\nx\nE", ["cat <<E > /a\nx\nE"]),
        ("WORKDIR /app", ["mkdir -p /app"]),
        ("COPY --chown=app --chmod=755 src /opt/src", ["chown -R app /opt/src", "chmod -R 755 /opt/src"]),
    ],
)
def test_kept_steps_run_as_they_did(lines: str, steps: list[str], translated: Translate) -> None:
    assert translated(f"FROM debian:12\n{lines}\n").steps == steps


def test_a_kept_step_has_its_shell_its_user_and_no_network_if_it_needs_none(translated: Translate) -> None:
    steps = translated(
        'FROM debian:12\nUSER app\nSHELL ["/bin/bash", "-o", "pipefail", "-c"]\nRUN a | b; c\n'
        'SHELL ["/bin/sh", "-c"]\nUSER root\nRUN mkdir /a\nRUN <<E\n#!/usr/bin/python3\nprint(1)\nE\n'
        "RUN --network=none make\n"
    ).proposal.run

    assert [(kept.step.shell, kept.step.user, kept.step.network) for kept in steps] == [
        (("/bin/bash", "-o", "pipefail", "-c"), "app", True),
        ((), "", False),
        (("/usr/bin/python3", "-c"), "", True),
        ((), "", False),
    ]
    assert [kept.step.command for kept in steps] == ["a | b; c", "mkdir /a", "print(1)", "make"]


@pytest.mark.parametrize(
    ("lines", "places"),
    [
        ("RUN echo a > /etc/apt/sources.list\nRUN apt-get install git", ["packages"]),
        ("RUN apt-get install git\nRUN echo a > /etc/apt/sources.list", [""]),
        ("RUN mkdir /a\nRUN apt-get install git", [""]),
        ("RUN pip uninstall -y a\nRUN pip install b", ["requirements"]),
        ("RUN apt-get install git\nRUN rm -rf /x/site-packages/y\nRUN pip install b", ["requirements"]),
        ("RUN mkdir /a\nRUN pip uninstall -y a\nRUN pip install b", ["requirements", "requirements"]),
        ("COPY src /opt/src\nRUN chmod +x /opt/src/a", [""]),
    ],
)
def test_a_kept_step_is_before_what_depends_on_it(
    lines: str, places: list[str], translated: Translate
) -> None:
    assert [kept.step.before for kept in translated(f"FROM debian:12\n{lines}\n").proposal.run] == places


def test_an_installation_stays_beside_a_kept_step_that_needs_earlier_packages(translated: Translate) -> None:
    result = translated(
        "FROM debian:12\nRUN apt-get install -y curl\nRUN curl https://x.example/setup | bash - && "
        "apt-get install -y nodejs\n"
    )

    assert [*result.proposal.apt] == ["curl"]
    assert result.steps == ["curl https://x.example/setup | bash - && apt-get install -y nodejs"]


def test_each_step_with_network_is_in_the_list_with_what_would_pin_it(translated: Translate) -> None:
    result = translated(
        "FROM debian:12\nRUN git clone https://x.example/a\nRUN npm install x\nRUN make\nRUN mkdir /a\n"
    )

    assert [detail for _, _, detail in result.checks] == [
        "step 1 of `run` may use the network: to pin it, check out a commit and write its name",
        "step 2 of `run` may use the network: to pin it, commit package-lock.json and use `npm ci`",
        "step 3 of `run` may use the network: find out what it downloads, or try it with `network: false`",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ADD https://x.example/a.bin /a", "download the file into the project and pin its checksum"),
        ("ADD a.tar.gz /opt/", "ADD unpacks the archive; unpack it into a directory"),
        ("COPY src/*.c /a/", "`src/*.c` matches nothing in the build context"),
        ("COPY ../other /a", "it is outside the build context"),
        ("COPY --from=nginx:1 /etc /a", f"it copies from nginx:1; {FOREIGN}"),
        ("COPY nosuch /a\nRUN rm /a", NEEDS),
        ("ADD https://x.example/a.py a.py\nRUN rm a.py", NEEDS),
        ("RUN apt-get install git=1", "`bake lock` selects the version"),
        ("RUN --mount=id=x,type=secret make", NO_SECRETS),
        ("RUN --mount=type=ssh git clone git@x.example:a/b", NO_SECRETS),
        ("RUN --mount=type=secret,id=x pip install tqdm",
         "build steps of a recipe get no secrets; downloads use the logins of this machine"),
        ("ARG TOKEN\nENV T=$TOKEN", "it looks like a secret; set it when the job starts"),
        ("ENV TOKEN=sw0rdfish7\nRUN make $TOKEN", SECRET),
        ("ARG PAT\nRUN git clone https://x:$PAT@x.example/a\nRUN make $PAT", SECRET),
        ("RUN --mount=source=a,dst=/b make", "it mounts a; copy them with `files`"),
        ("ONBUILD RUN make", "training images are not used as base images"),
        ("USER app", "SageMaker starts training as root; only steps of `run` have this user"),
        ("FOO bar", "it has no equivalent in a recipe"),
        ("ARG VERSION\nRUN echo $VERSION",
         "the Dockerfile does not say its value; give it with `--build-arg VERSION=VALUE`"),
        ("ENV PATH=/opt/x:$PATH", "a recipe cannot extend PATH; the directory is /opt/x"),
        ("COPY src", "it has no target"),
        ('CMD ["python", "serve.py"]', "move `serve.py` into a directory of its own and name it in `code`"),
        ("COPY src /opt/ml/code\nCMD torchrun --nproc-per-node 4 /opt/ml/code/train.py",
         "torchrun --nproc-per-node 4 does not start the script; set the job's `distribution`"),
        ("COPY src /opt/ml/code\nCMD python /opt/ml/code/train.py --epochs 3",
         "pass --epochs as hyperparameters of the job"),
        ("COPY src /opt/ml/code\nENV SAGEMAKER_PROGRAM other.py",
         "`other.py` is not among the copied files; name it in `code`"),
        (f"RUN wget {METIS} && patch -p1 metis-5.1.0/a < /a",
         "it uses the sources of metis, which the component replaces"),
    ],
)  # fmt: skip
def test_what_is_neither_lifted_nor_kept_is_in_the_list(
    line: str, expected: str, translated: Translate
) -> None:
    assert expected in {detail for _, _, detail in translated(f"FROM debian:12\n{line}\n").checks}


@pytest.mark.parametrize(
    "lines",
    [
        "COPY . /app\nCMD python /app/src/train.py",
        "WORKDIR /opt/ml/code\nCOPY src .\nCMD python -m train",
        "COPY src/ /opt/ml/code\nENV SAGEMAKER_PROGRAM=train.py",
        'COPY src /opt/ml/code\nCMD ["python", "-u", "/opt/ml/code/train.py"]',
    ],
)
def test_the_script_that_the_image_starts_is_in_the_code(lines: str, translated: Translate) -> None:
    directory, entry_point = translated(f"FROM debian:12\n{lines}\n").proposal.code or ("", "")

    assert f"{directory}/{entry_point}".removeprefix("./") == "src/train.py"


def test_code_that_kept_steps_or_variables_use_stays_where_it_was(translated: Translate) -> None:
    result = translated("FROM debian:12\nCOPY src /app\nENV PYTHONPATH=/app\nCMD python /app/train.py\n")

    assert [file.target for file in result.proposal.files] == ["/app"]
    assert result.proposal.code == ("src", "train.py")


def test_the_directory_of_a_vendors_base_is_not_taken_for_the_root(translated: Translate) -> None:
    result = translated(
        "FROM nvcr.io/nvidia/pytorch:26.07-py3\nCOPY src lib\nRUN touch x\nCOPY src /opt/src\n"
    )

    assert [file.target for file in result.proposal.files] == ["/opt/src"]
    assert result.steps == ["touch x"]
    assert (2, "the working directory of the base is not known; write an absolute path") in [
        (line, detail) for line, _, detail in result.checks
    ]


def test_an_own_train_program_on_the_path_is_named(translated: Translate, context: Path) -> None:
    (context / "own").mkdir()
    (context / "own/train").write_text("#!/bin/sh\n")
    result = translated("FROM debian:12\nENV PATH=/opt/program:$PATH\nCOPY own /opt/program\n")

    assert result.checks[0][2].startswith("/opt/program has its own program `train`")


def test_the_old_form_of_env_removes_quotes_and_other_words_are_errors(translated: Translate) -> None:
    environment = translated(
        "FROM debian:12\nENV MESSAGE \"hello world\"\nENV OTHER='x y' A=b\\ c\n"
    ).proposal.environment

    assert {name: value for name, (value, _) in environment.items()} == {
        "MESSAGE": "hello world",
        "OTHER": "x y",
        "A": "b c",
    }
    [diagnostic] = raised(RecipeError, translated, "FROM debian:12\nENV A=$(ls *.gz)\n").diagnostics
    assert diagnostic.message == "`*.gz)` in ENV has no `=`; BuildKit rejects this line"
    assert diagnostic.location is not None
    assert diagnostic.location.line == 2


@pytest.mark.parametrize("source", ["git clone https://github.com/NVIDIA/nccl {0}", "mkdir {0} && cd {0} && "
    "curl -O https://efa-installer.amazonaws.com/aws-efa-installer-1.47.0.tar.gz"])  # fmt: skip
@pytest.mark.parametrize("directory", ["/opt/src", "/tmp/a/b"])
def test_a_component_owns_what_its_download_made_and_nothing_else(
    source: str, directory: str, translated: Translate
) -> None:
    result = translated(
        f"FROM nvidia/cuda:12.9.1-devel-ubuntu22.04\nWORKDIR /work\nRUN {source.format(directory)}\n"
        f"RUN cd {directory} && ./configure && make -j $(nproc) && cd / && rm -rf {directory}\n"
        "RUN make\nRUN bash build_ops.sh\n"
    )

    assert result.steps == [
        "mkdir -p /work && cd /work\nmake",
        "mkdir -p /work && cd /work\nbash build_ops.sh",
    ]


def test_a_stage_that_only_builds_components_is_replaced_and_others_are_in_the_list(
    translated: Translate,
) -> None:
    metis = f"wget {METIS} && tar xf metis-5.1.0.tar.gz"
    result = translated(
        f"FROM debian:12 AS builder\nRUN {metis} && cd metis-5.1.0 && make prefix=/opt/m\n"
        "FROM golang:1.22 AS tool\nRUN go build ./...\n"
        "FROM debian:12\nCOPY --from=builder /opt/m /opt/m\nCOPY --from=tool /x /x\n"
    )

    assert [(line, detail.partition(";")[0]) for line, _, detail in result.checks] == [
        (3, "it builds files for `COPY --from=tool`"),
        (4, "it builds files for `COPY --from=tool`"),
        (7, "it copies from tool"),
    ]
    assert result.selection.components["metis"] == "5.1.0"


def test_the_nearest_directory_with_the_sources_is_the_context(tmp_path: Path) -> None:
    dockerfile = tmp_path / "docker/gpu/Dockerfile"
    dockerfile.parent.mkdir(parents=True)
    (tmp_path / "src").mkdir()
    dockerfile.write_text("FROM x\nCOPY src /a\nCOPY docker/gpu/Dockerfile /b\n")
    assert find_context(dockerfile, tmp_path) == tmp_path

    dockerfile.write_text("FROM x\nCOPY Dockerfile nosuch /a\n")
    assert find_context(dockerfile, tmp_path) == dockerfile.parent
