"""Steps of `run`, which come last in the image of a recipe: they must not need what it lacks."""

from collections.abc import Callable

import pytest

from tests.commands.dockerfile_import.translated_dockerfile import Translated

Translate = Callable[[str], Translated]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            "COPY nosuch /usr/local/bin/x\nRUN chmod +x /usr/local/bin/x",
            "the image of the recipe may have no /usr/local/bin/x",
        ),
        (
            "COPY --from=a /x /usr/bin/x\nRUN chmod +x /usr/bin/x",
            "the image of the recipe may have no /usr/bin/x",
        ),
        ("RUN mv /opt/a/b /opt/a/c && echo x > /opt/a/b", "the image of the recipe may have no /opt/a/b"),
        ("RUN echo x > /opt/unknown/y", "the image of the recipe may have no /opt/unknown"),
        ("RUN mv app/a.py app/b.py", "the image of the recipe may have no app/a.py"),
        ("RUN rm /srv/x", "the image of the recipe may have no /srv/x"),
        ("RUN echo $NAME > /etc/x", "the Dockerfile does not say the value of NAME"),
        (
            "RUN rm -rf /opt/amazon/openmpi",
            "steps of `run` come after the components; check that none of them needs it",
        ),
        ("RUN ./aws/install", "add it to `run` if it needs no network, or write a component"),
        ("WORKDIR /srv/app\nRUN mkdir x", "the image of the recipe may have no /srv/app"),
        ("COPY . /app\nRUN sed -i s/a/b/ /app/x", "it uses files of a COPY that is not translated"),
        (
            "RUN echo a > /etc/yum.repos.d/x.repo",
            "Bakehouse uses only the packages of the base's distribution",
        ),
        (
            "ENV LD_PRELOAD=/usr/local/x.so",
            "check that the image has this library, then add it to `environment`",
        ),
        (
            "COPY src /app\nENV SAGEMAKER_PROGRAM=x.py PYTHONPATH=/app\nCMD python /app/train.py",
            "`x.py` is not among the copied files; name it in `code`",
        ),
    ],
)
def test_steps_that_need_more_are_not_translated(lines: str, reason: str, translated: Translate) -> None:
    result = translated(f"FROM debian:12\n{lines}\n")

    assert reason in {detail for _, _, detail in result.untranslated}
    assert result.steps == []


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        ("RUN mkdir -p /data && chmod 777 /data", ["mkdir -p /data", "chmod 777 /data"]),
        ("COPY tools /opt/tools\nRUN chmod +x /opt/tools/a.sh", ["chmod +x /opt/tools/a.sh"]),
        ("RUN sudo mkdir /data", ["mkdir /data"]),
        (
            "RUN echo 'a $B' >> /etc/profile && rm -rf /opt/hpcx",
            ["echo 'a $B' >> /etc/profile", "rm -rf /opt/hpcx"],
        ),
        ('ENV A="x y"\nRUN echo $A > /etc/a', ['echo "x y" > /etc/a']),
        ("RUN mkdir /srv/app\nWORKDIR /srv/app\nRUN touch x", ["mkdir /srv/app", "cd /srv/app && touch x"]),
    ],
)
def test_steps(lines: str, steps: list[str], translated: Translate) -> None:
    assert translated(f"FROM debian:12\n{lines}\n").steps == steps


def test_the_selected_python_is_the_component(translated: Translate) -> None:
    result = translated(
        "FROM nvidia/cuda:12.8.1-base-ubuntu22.04\nRUN ln -sf /usr/local/bin/python3.12 /usr/bin/python"
        " && rm -f /usr/local/bin/python3\n"
    )

    assert result.selection.components["python"] == "3.12"
    assert (result.steps, result.untranslated) == ([], [])


def test_a_script_that_moves_is_noted(translated: Translate) -> None:
    result = translated("FROM debian:12\nCOPY src /app\nENV PYTHONPATH=/app\nCMD python /app/train.py\n")

    assert [(line, detail) for line, _, detail in result.untranslated] == [
        (3, "the code moves from /app to /opt/ml/code"),
        (4, "the code moves from /app to /opt/ml/code"),
    ]
