"""The translation of instructions and commands."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse.commands.dockerfile_import.account import Fate
from tests.commands.dockerfile_import.translated_dockerfile import Translated

Translate = Callable[[str], Translated]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ADD https://x.example/a.bin /a", "download the file into the project and pin its checksum"),
        ("ADD a.tar.gz /opt/", "ADD unpacks the archive; unpack it into a directory"),
        ("COPY nosuch /a", "`nosuch` does not exist next to the Dockerfile"),
        ("COPY src/*.c /a/", "`src/*.c` matches nothing next to the Dockerfile"),
        ("COPY ../other /a", "it is outside the build context"),
        (
            "COPY . /everything",
            "it copies the whole project; copy the directories that the image needs",
        ),
        (
            "COPY --from=nginx:1 /etc /a",
            "it copies from nginx:1; write a component, or add the files to the project",
        ),
        ("COPY <<E /a\nx\nE", "write the content into a file of the project and copy it with `files`"),
        ("RUN cat <<E > /a\nx\nE", "write the content into a file of the project and copy it with `files`"),
        (
            "RUN pip install -e .",
            "copy the package with `files` or `code`, and its requirements into `requirements`",
        ),
        (
            "RUN pip install git+https://x.example/a",
            "add `NAME @ URL` to the requirements, with a commit or a version in the URL",
        ),
        ("RUN pip install -r nosuch.txt", "`nosuch.txt` does not exist next to the Dockerfile"),
        (
            "RUN pip install -i https://x.example/simple a",
            "set the index in pip's configuration, which `bake lock` reads",
        ),
        (
            "RUN pip install a==$VERSION",
            "pin a version in a requirements file: the Dockerfile does not say its value",
        ),
        ("RUN pip uninstall -y a", "a recipe does not remove packages; leave them out of the requirements"),
        ("RUN pip install 'pip<24'", "add it to the requirements if your code imports it"),
        ("RUN pip install tqdm>=4", "quote it: the shell reads it as a redirection"),
        ("RUN pip install tqdm || true", "a recipe has no alternatives: a step that fails ends the build"),
        ("RUN pip install --no-deps tqdm", "a recipe has no options of pip; check what it changes"),
        ("RUN pip install --pre tqdm", "a recipe has no options of pip; check what it changes"),
        (
            "RUN pip install -f https://wheels.example/ tqdm",
            "a recipe has no options of pip; check what it changes",
        ),
        ("RUN pip install --target /opt/x tqdm", "a recipe has no options of pip; check what it changes"),
        (
            "RUN conda install numpy",
            "add the package of the same name to the requirements, if the package index has it",
        ),
        (
            "RUN conda env create -f environment.yml",
            "export the environment with `pip list --format=freeze` and name the file in `requirements`",
        ),
        ("RUN make install", "add it to `run` if it needs no network, or write a component"),
        (
            "RUN curl -fsSL https://x.example/i.sh | sh",
            "downloads belong in a component, where they are pinned",
        ),
        ("RUN npm install -g x", "Bakehouse does not install packages with npm; write a component"),
        ("RUN poetry install", "export a requirements file from poetry and name it in `requirements`"),
        (
            "RUN git clone https://github.com/openucx/ucx",
            "the catalogue has no UCX; over EFA, Open MPI and NCCL use libfabric",
        ),
        (
            "RUN for i in 1 2; do echo $i; done",
            "decide what it does: add the packages, or copy the script with `files` and call it in `run`",
        ),
        (
            "RUN apt-get install ./a.deb",
            "it is not a package of the distribution; write a component with the file",
        ),
        ("RUN apt-get install -y -t bookworm-backports git", "a recipe has no options of apt"),
        ("RUN apt-get upgrade -y", "`bake lock` selects the versions; remove it"),
        (
            "RUN apt-get remove -y perl",
            "a recipe does not remove packages; leave them, or choose another base",
        ),
        ("RUN apt-get install git=1", "`bake lock` selects the version"),
        (
            "RUN OPS=1 pip install tqdm",
            "a recipe sets no variables for one command; set it in `environment` if the image needs it",
        ),
        ("RUN --network=none pip install tqdm", "steps of a recipe have no options"),
        (
            "RUN --mount=type=secret,id=x pip install tqdm",
            "build steps of a recipe get no secrets; use this machine's pip configuration",
        ),
        ("HEALTHCHECK NONE", "SageMaker does not run health checks of training jobs"),
        ("ONBUILD RUN make", "training images are not used as base images"),
        ("LABEL a=b", "Bakehouse sets the labels of its images"),
        ("EXPOSE 80", "training jobs do not publish ports"),
        ("USER app", "training images run as root"),
        ("FOO bar", "it has no equivalent in a recipe"),
        ("ARG VERSION", "a recipe has no build arguments; write the value where it is used"),
        ("ARG VERSION=1", "a recipe has no build arguments, and no instruction names this one"),
        ("ENV PATH=/opt/x:$PATH", "a recipe cannot extend PATH; use the full path of the programs in /opt/x"),
        (
            "ENV PYTHONPATH=/x:$PYTHONPATH",
            "the base may set PYTHONPATH; variables are not expanded; write the value into `environment`",
        ),
        (
            "ENV API_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345",
            "it looks like a secret; set it when the job starts",
        ),
        ("WORKDIR /app", "SageMaker starts training in /opt/ml/code; paths of the recipe are absolute"),
        ("COPY --chown=app src /opt/src", "files of a recipe belong to root and keep their mode"),
        ("COPY --chmod=755 src /opt/src", "files of a recipe keep their mode; run `chmod` in the project"),
        ("COPY src", "it has no target"),
        ('CMD ["python", "serve.py"]', "move `serve.py` into a directory of its own and name it in `code`"),
        (
            'COPY src/train.py /app/\nCMD ["python", "/app/train.py"]',
            "move `train.py` into a directory of its own and name it in `code`",
        ),
        (
            "COPY src /opt/ml/code\nCMD nginx -g x",
            "SageMaker starts `train`, which runs the entry point of `code`",
        ),
        (
            "COPY src /opt/ml/code\nCMD torchrun --nproc-per-node 4 /opt/ml/code/train.py",
            "torchrun --nproc-per-node 4 does not start the script; set the job's `distribution`",
        ),
        (
            "COPY src /opt/ml/code\nCMD python /opt/ml/code/train.py --epochs 3",
            "pass --epochs as hyperparameters of the job",
        ),
        (
            'COPY src /opt/ml/code\nENV SAGEMAKER_PROGRAM="-m accelerate.commands.launch train.py"',
            "an entry point is a script; write one that starts this command, and name it in `code`",
        ),
        (
            "COPY src /opt/ml/code\nENV SAGEMAKER_PROGRAM other.py",
            "`other.py` is not among the copied files; name it in `code`",
        ),
        (
            'RUN mkdir /data\nSHELL ["/bin/bash", "-c"]',
            "steps of `run` use /bin/sh",
        ),
        (
            "RUN make x && mkdir -p /y && touch /y/z",
            "it may need the result of a command that is not translated",
        ),
        ("RUN chmod +x /app/x.sh", "the image of the recipe may have no /app/x.sh"),
    ],
)
def test_untranslated_words_say_what_to_do(line: str, expected: str, translated: Translate) -> None:
    result = translated(f"FROM debian:12\n{line}\n")

    assert expected in {detail for _, _, detail in result.untranslated}
    assert {number for number, _, _ in result.untranslated} <= {2, 3}


@pytest.mark.parametrize(
    "lines",
    [
        "RUN apt-get update -qq && apt-get install -yq --no-install-recommends git && apt-get clean",
        "RUN --mount=type=cache,target=/root/.cache pip install -U --no-cache-dir pip tqdm",
        "ENV DEBIAN_FRONTEND=noninteractive\nRUN DEBIAN_FRONTEND=noninteractive apt-get install git",
        "COPY --link --chown=root:root src /opt/src",
        'ENV SAGEMAKER_PROGRAM "train.py"\nCOPY src /opt/ml/code',
        'COPY src /opt/ml/code\nCMD ["python", "-u", "/opt/ml/code/train.py"]',
        "COPY src /opt/ml/code\nENV SAGEMAKER_PROGRAM=train.py\nENTRYPOINT train",
        "COPY src/train.py /opt/ml/code/train.py\nENV SAGEMAKER_PROGRAM train.py",
        'ENV PATH="/opt/ml/code:${PATH}"\nCMD ["/bin/bash"]',
        "RUN <<EOF\nset -e\napt-get update  # lists\napt-get install -y git\nEOF",
        "RUN bash -c 'apt-get update && apt-get install -y git'",
        'RUN ["apt-get", "install", "-y", "git"]',
        'RUN ["/bin/bash", "-c", "apt-get update && apt-get install -y git"]',
        "RUN pip install -c limits.txt tqdm",
        "COPY requirements.txt /tmp/\nRUN pip install -r /tmp/requirements.txt && rm /tmp/requirements.txt",
        "COPY --from=ghcr.io/astral-sh/uv:0.5 /uv /bin/\nRUN uv pip install --system tqdm",
        "RUN apt-get install -y python3 python3-pip && ln -s /usr/bin/python3 /usr/bin/python",
        "RUN mkdir -p /var/run/sshd && apt-get install -y openssh-server && ssh-keygen -A",
        "ARG VERSION=4.67\nRUN pip install tqdm==${VERSION}",
        "RUN yes | apt-get install git",
    ],
)
def test_a_complete_translation_lists_nothing(lines: str, translated: Translate) -> None:
    assert translated(f"FROM debian:12\n{lines}\n").untranslated == []


def test_operators_in_quotes_do_not_split_commands(translated: Translate) -> None:
    result = translated(
        "FROM debian:12\nRUN echo 'a && b; c' > /etc/a && sh -c \"mkdir -p /data && touch '/data/x y'\"\n"
    )

    assert result.steps == ["echo 'a && b; c' > /etc/a", "mkdir -p /data", "touch '/data/x y'"]


def test_the_values_of_build_arguments_are_in_the_recipe(translated: Translate) -> None:
    result = translated(
        "ARG TAG=12\nFROM debian:${TAG}\nARG TAG\nARG MAJOR=4\nENV A=${MAJOR}.67 B='${MAJOR}' C ${X:-y}\n"
        "RUN pip install tqdm==$A && mkdir /opt/${MAJOR}\n"
    )

    assert [*result.proposal.requirements] == ["tqdm==4.67"]
    assert result.proposal.environment["A"][0] == "4.67"
    assert result.proposal.environment["B"][0] == "${MAJOR}" if "B" in result.proposal.environment else True
    assert result.steps == ["mkdir /opt/4"]


def test_words_have_the_line_where_they_are(translated: Translate) -> None:
    result = translated(
        "FROM debian:12\nRUN apt-get install -y \\\n    git \\\n    # needed by x\n\n"
        "    ./x.deb \\\n && make\n"
    )

    assert [(line, text) for line, text, _ in result.untranslated] == [(6, "RUN … ./x.deb"), (7, "RUN make")]


def test_the_old_form_of_env_removes_quotes(translated: Translate) -> None:
    environment = translated(
        "FROM debian:12\nENV MESSAGE \"hello world\"\nENV OTHER='x y' A=b\\ c\n"
    ).proposal.environment

    assert {name: value for name, (value, _) in environment.items()} == {
        "MESSAGE": "hello world",
        "OTHER": "x y",
        "A": "b c",
    }


def test_an_own_train_program_on_the_path_is_named(translated: Translate, context: Path) -> None:
    (context / "own").mkdir()
    (context / "own/train").write_text("#!/bin/sh\n")
    result = translated("FROM debian:12\nENV PATH=/opt/program:$PATH\nCOPY own /opt/program\n")

    assert result.untranslated == [
        (
            2,
            "ENV PATH=/opt/program:$PATH",
            "/opt/program has its own program `train`, which SageMaker would start instead of the toolkit's; "
            "make it the entry point of `code`",
        )
    ]


def test_an_own_train_program_of_the_code_is_named(translated: Translate, context: Path) -> None:
    (context / "train").write_text("#!/bin/sh\n")
    result = translated("FROM debian:12\nENV PATH=$PATH:/opt/ml/code\nCOPY train /opt/ml/code/train\n")

    assert [(line, text) for line, text, _ in result.untranslated] == [(2, "ENV PATH=$PATH:/opt/ml/code")]


def test_a_bash_entry_point(translated: Translate, context: Path) -> None:
    (context / "src/train.sh").write_text("true\n")
    result = translated('FROM debian:12\nWORKDIR /app\nCOPY src .\nENTRYPOINT ["bash", "train.sh"]\n')

    assert result.proposal.code == ("src", "train.sh")
    assert [(line, detail) for line, _, detail in result.untranslated] == [
        (2, "SageMaker starts training in /opt/ml/code; paths of the recipe are absolute"),
        (4, "the code moves from /app to /opt/ml/code"),
    ]


def test_a_module_as_entry_point(translated: Translate) -> None:
    result = translated("FROM debian:12\nWORKDIR /opt/ml/code\nCOPY src .\nCMD python -m train\n")

    assert result.proposal.code == ("src", "train.py")
    assert result.untranslated == []


def test_secrets_are_never_shown(translated: Translate) -> None:
    address = "https://ada:swordfish@x.example"
    token = "hf_" + "abcdefghij" * 4
    result = translated(
        f"FROM debian:12\nRUN TOKEN=swordfish pip install x\n"
        f"RUN apt-get install -o Acquire::http::Proxy={address} git\n"
        f"RUN pip install --proxy={address} --index-url {address}/simple"
        f" 'a @ {address}/a.whl' {address}/b.whl\n"
        f"RUN git clone {address}/a.git"
        f" && huggingface-cli login --token swordfish {token} --password=swordfish\n"
        f"ARG HF_TOKEN={token}\nRUN echo {token} > /root/token\n"
    )

    assert result.untranslated
    assert [entry for entry in result.entries if "swordfish" in f"{entry}" or token in f"{entry}"] == []
    assert token not in " ".join(result.steps)
    assert "swordfish" not in " ".join(result.proposal.requirements)


def test_files_of_builder_stages_become_components(translated: Translate) -> None:
    result = translated(
        "FROM debian:12 AS builder\n"
        "RUN wget http://glaros.dtc.umn.edu/gkhome/fetch/sw/metis/metis-5.1.0.tar.gz"
        " && tar xf metis-5.1.0.tar.gz"
        " && cd metis-5.1.0 && make config prefix=/opt/metis && make install\n"
        "FROM debian:12\nCOPY --from=builder /opt/metis /opt/metis\n"
    )

    assert result.untranslated == []
    assert result.selection.components["metis"] == "5.1.0"


def test_other_stages_are_listed(translated: Translate) -> None:
    result = translated(
        "FROM golang:1.22 AS tool\nRUN go build ./...\nFROM debian:12\nCOPY --from=tool /x /x\n"
    )

    assert {(line, detail.partition(";")[0]) for line, _, detail in result.untranslated} == {
        (1, "it builds files for `COPY --from=tool`"),
        (2, "Bakehouse does not install packages with go"),
        (4, "it copies from tool"),
    }


@pytest.mark.parametrize(
    ("lines", "component", "version"),
    [
        (
            "RUN git clone -b v2.27.7-1 https://github.com/NVIDIA/nccl && cd nccl && make src.build",
            "nccl",
            "2.27.7",
        ),
        (
            "RUN git clone https://github.com/NVIDIA/nccl /tmp/nccl\nWORKDIR /tmp/nccl\n"
            "RUN git checkout v2.27.7-1 && make",
            "nccl",
            "2.27.7",
        ),
        (
            "ARG V=1.46.0\nRUN mkdir /tmp/efa && cd /tmp/efa && "
            "curl -O https://efa-installer.amazonaws.com/aws-efa-installer-${V}.tar.gz && "
            "tar -xf aws-efa-installer-${V}.tar.gz && cd aws-efa-installer && ./efa_installer.sh -y"
            " && rm -rf /tmp/efa",
            "efa",
            "1.46.0",
        ),
        (
            "RUN wget https://download.open-mpi.org/release/open-mpi/v4.1/openmpi-4.1.8.tar.gz && "
            "tar xf openmpi-4.1.8.tar.gz && cd openmpi-4.1.8 && ./configure --prefix=/opt/x"
            " && make -j8 install && ldconfig",
            "open-mpi",
            "4.1.8",
        ),
        ("ADD https://github.com/rapidsai/rmm/archive/v0.15.0.tar.gz /tmp/", "librmm", "0.15.0"),
        (
            "RUN curl -L https://github.com/rapidsai/rmm/archive/v0.15.0.tar.gz | tar xz"
            " && cd rmm-0.15.0 && ./build.sh librmm",
            "librmm",
            "0.15.0",
        ),
        (
            "RUN pip install torch==2.9.1 --index-url https://download.pytorch.org/whl/cu128",
            "pytorch",
            "2.9.1",
        ),
        ("RUN conda install -y pytorch==2.9.1 -c pytorch", "pytorch", "2.9.1"),
        ("RUN apt-get install -y python3.10-dev", "python", "3.10"),
        ("RUN curl https://pyenv.run | bash && pyenv install 3.11.9", "python", "3.11"),
        ("RUN uv venv --python 3.12 /opt/venv", "python", "3.12"),
        ("RUN conda install -y python=3.11", "python", "3.11"),
        (
            "RUN wget https://www.python.org/ftp/python/3.10.14/Python-3.10.14.tgz"
            " && tar xf Python-3.10.14.tgz && "
            "cd Python-3.10.14 && ./configure --enable-optimizations && make altinstall",
            "python",
            "3.10",
        ),
    ],
)
def test_hand_made_builds_become_components(
    lines: str, component: str, version: str, translated: Translate
) -> None:
    result = translated(f"FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\n{lines}\n")
    wish = result.proposal.wishes[component]

    assert wish.specifier in (f"=={version}", f"=={version}.*")
    fates = {word.fate for word in result.proposal.account.words if word.keyword == "RUN"}
    if component != "librmm":
        # RMM 0.15 does not support this CUDA.
        assert result.selection.components[component] == version
        assert fates <= {Fate.REPLACED}
    else:
        assert component in result.selection.dropped


def test_a_patched_build_keeps_what_is_not_part_of_it(translated: Translate) -> None:
    result = translated(
        "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\n"
        "RUN git clone https://github.com/NVIDIA/nccl && cd nccl && patch -p1 < /a.patch && make && "
        "apt-get install -y git && curl -O https://x.example/y && echo a > /etc/b\n"
    )

    assert [text for _, text, _ in result.untranslated] == [
        "RUN patch -p1 < /a.patch",
        "RUN curl -O https://x.example/y",
        "RUN echo a > /etc/b",
    ]
    assert [*result.proposal.apt] == ["git"]


def test_paths_of_a_replaced_build_are_not_kept(translated: Translate) -> None:
    result = translated(
        "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\n"
        "ENV LD_LIBRARY_PATH=/opt/nccl/build/lib:$LD_LIBRARY_PATH\n"
        "RUN git clone https://github.com/NVIDIA/nccl /opt/nccl && cd /opt/nccl && make\n"
        "ENV LD_PRELOAD=/opt/nccl/build/lib/libnccl.so\n"
    )

    assert [(line, text) for line, text, _ in result.untranslated] == [
        (4, "ENV LD_PRELOAD=/opt/nccl/build/lib/libnccl.so")
    ]
    assert "LD_PRELOAD" not in result.proposal.environment


def test_options_of_a_requirements_file_are_listed(translated: Translate, context: Path) -> None:
    (context / "requirements.txt").write_text(
        "--extra-index-url https://u:p@x.example/\ntorch==2.9.1\ntqdm\n"
    )
    result = translated("FROM debian:12\nCOPY requirements.txt .\nRUN pip install -r requirements.txt\n")

    assert result.untranslated == [
        (
            3,
            "requirements.txt:1: --extra-index-url https://x.example",
            "remove the option: `bake lock` reads indexes from pip's configuration",
        )
    ]
    assert result.selection.components["pytorch"] == "2.9.1"


@pytest.mark.parametrize(
    "copies",
    [
        "COPY requirements.txt src/ /opt/ml/code/",
        "COPY src/ /opt/ml/code/\nCOPY requirements.txt /opt/ml/code/",
        "COPY requirements.txt /opt/ml/code/\nCOPY src/ /opt/ml/code/",
    ],
)
def test_files_of_several_sources_are_found_in_one_directory(translated: Translate, copies: str) -> None:
    outcome = translated(
        f"FROM python:3.11\n{copies}\nRUN pip install -r /opt/ml/code/requirements.txt\n"
        'CMD ["python", "/opt/ml/code/train.py"]\n'
    )

    assert outcome.untranslated == []
    assert list(outcome.proposal.requirement_files) == ["requirements.txt"]
    assert outcome.proposal.code == ("src", "train.py")


def test_a_missing_file_of_a_copied_directory_is_named(translated: Translate) -> None:
    outcome = translated("FROM python:3.11\nCOPY src/ /code/\nRUN pip install -r /code/other.txt\n")

    assert outcome.untranslated == [
        (3, "RUN … -r /code/other.txt", "`src/other.txt` does not exist next to the Dockerfile")
    ]
