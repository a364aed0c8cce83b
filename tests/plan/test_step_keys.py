"""Keys of steps: what changes them, and what does not."""

import random
from itertools import combinations

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from bakehouse.plan.step_keys import Tree, file_content, read_steps
from tests.support import step_edits
from tests.support.step_edits import Build

BASE = "debian@sha256:1"
BEFORE = Build(step_edits.TEXT.format(base=BASE)).keys()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*step_edits.EDITS]), min_size=2, max_size=4, unique=True), st.randoms())
def test_edits_change_the_keys_of_the_steps_that_run_again_and_no_others(
    names: list[str], draw: random.Random
) -> None:
    """`tests/integration/test_step_keys.py` compares the same edits with BuildKit."""
    build = Build(step_edits.TEXT.format(base=BASE))
    expected = set[str]()
    for name in names:
        try:
            expected |= step_edits.edit(build, name, draw)
        except (LookupError, ValueError):
            # An edit before it has changed the same text
            reject()

    after = build.keys()

    assert {name for name in after if after[name] != BEFORE[name]} == expected


@pytest.mark.parametrize("name", step_edits.EDITS)
def test_each_edit(name: str) -> None:
    build = Build(step_edits.TEXT.format(base=BASE))
    expected = step_edits.edit(build, name, random.Random(0))

    assert {name for name, key in build.keys().items() if key != BEFORE[name]} == expected


def image(text: str, files: Tree | None = None, **options: str) -> str:
    return read_steps(f"FROM {BASE}\n{text}", files or {}, platform=options.pop("platform", "amd64")).image


DIFFERENT = {
    "here-documents": [
        *("RUN <<E\na\nE\n", "RUN <<E\n#a\nE\n", "RUN <<E\na\n\nE\n", "RUN <<E\nE\n", "RUN <<E\n\nE\n"),
        *("RUN <<E\na\x0cb\nE\n", "RUN <<E\na\nb\nE\n", "RUN <<E\na\u2028b\nE\n", "RUN <<E\na\r\nb\nE\n"),
        *(
            "RUN cat <<E\na\nE\n",
            "RUN cat <<F\na\nF\n",
            "RUN <<E\n#!/bin/a\nE\n",
            "RUN <<F\n#!/bin/a\nF\n",
            "RUN cat <<E\nb\nE\n",
            "RUN <<E\n#!/bin/b\nE\n",
        ),
    ],
    "copied here-documents": [
        *("COPY <<E /a\nx\nE\n", "COPY <<E /a\ny\nE\n", "COPY <<E /b\nx\nE\n", "COPY <<E /a\n\nE\n"),
        "COPY <<E /a\nE\n",
    ],
    "quotes": [
        *('ENV A="a\\b"\nRUN x', "ENV A=ab\nRUN x", 'ENV A="a b"\nRUN x', 'ENV A="a  b"\nRUN x'),
        *('ENV A="a\\"b"\nRUN x', "ENV A='a\\b'\nRUN x\nRUN y", "ENV A b c\nRUN x", "ENV A b  c\nRUN x"),
    ],
    "variables": [
        *("ENV A=1\nENV B=$A\nRUN x", "ENV A=2\nENV B=$A\nRUN x", "ENV B=$A\nRUN x", "ENV B=\\$A\nRUN x"),
        *("ENV A=1\nCOPY a /$A/", "ENV A=2\nCOPY a /$A/", "ARG A=1\nCOPY a /$A/", "ARG A=2\nCOPY a /$A/"),
    ],
    "configuration": [
        *(
            "CMD a",
            "CMD b",
            'CMD ["a"]',
            "ENTRYPOINT a",
            "CMD a\nENTRYPOINT a",
            "EXPOSE 1",
            "EXPOSE 1\nEXPOSE 2",
        ),
        *("USER a", "VOLUME /a", "STOPSIGNAL 9", "ENV A=1", "WORKDIR /a", "HEALTHCHECK CMD a"),
        *("HEALTHCHECK --retries=9 CMD a", 'SHELL ["a"]', "ONBUILD RUN a"),
    ],
    "copies": [
        *(
            "COPY a /x",
            "COPY a /x/",
            "COPY --link a /x",
            "COPY --chmod=700 a /x",
            "COPY --chown=1 a /x",
            "ADD a /x",
        ),
        *(
            "COPY b /x",
            "COPY --from=c a /x",
            "COPY a b /x/",
            "COPY b a /x/",
            "COPY --parents a /x",
            "COPY --from=c b /x",
        ),
        *("WORKDIR /x\nCOPY a y", "WORKDIR /x\nCOPY a z", "COPY * /x", "COPY a* /x", "COPY . /x"),
    ],
    "mounts": [
        *("RUN --mount=target=/a x", "RUN --mount=target=/b x", "RUN --mount=target=/a,rw x", "RUN x"),
        *(
            "RUN --mount=type=cache,target=/a x",
            "RUN --mount=type=tmpfs,target=/a x",
            "RUN --security=insecure x",
        ),
        *("RUN --mount=target=/a,from=c x", "RUN --mount=target=/a,from=c,source=/d x"),
        *(
            "RUN --mount=type=cache,target=/a,id=b x",
            "RUN --mount=type=secret,id=a x",
            "RUN --network=none x",
        ),
        *("RUN --mount=type=secret,id=a,required=true x", "RUN --mount=target=/a,source=a x"),
    ],
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_different_content_has_different_keys(kind: str) -> None:
    files = {name: file_content(name.encode(), is_executable=False) for name in ("a", "b")}
    keys = {text: image(text, files) for text in DIFFERENT[kind]}

    assert [(one, two) for one, two in combinations(keys, 2) if keys[one] == keys[two]] == []


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("RUN a \\\n  b", "RUN a \\\n# c\n\n  b"),
        ("RUN --mount=target=/a x", "RUN --mount=type=bind,source=/,dst=/a x"),
        ("RUN --mount=type=secret,id=a x", "RUN --mount=type=secret,target=/run/secrets/a,id=a x"),
        ("RUN <<-E\n\ta\nE\n", "RUN <<F\na\nF\n"),
        ("LABEL a=b\nRUN x", "RUN x\n\n\nlabel c=d"),
        ("ENV A=1 B=2", "ENV A=1\nENV B='2'"),
        ("FROM a AS b\nRUN x\nFROM b", "FROM a AS c\nRUN x\nFROM c AS d"),
        ("FROM a:1@sha256:2", "FROM b:2@sha256:2"),
        ("FROM a AS b\nRUN x\nFROM d\nCOPY --from=b / /", "FROM a\nRUN x\nFROM d\nCOPY --from=1 / /"),
    ],
)
def test_the_same_content_has_the_same_key(one: str, two: str) -> None:
    assert image(one) == image(two)


def test_the_platform_and_the_contexts_of_a_build_are_keyed() -> None:
    text = f"FROM scratch AS code\nFROM {BASE}\nARG A\nCOPY --from=code / /code/\nRUN x"
    files = {"a.py": file_content(b"1", is_executable=False)}
    other = {"a.py": file_content(b"2", is_executable=False)}
    reads = [
        read_steps(text, {}, platform="amd64"),
        read_steps(text, {}, platform="arm64"),
        read_steps(text, {}, platform="amd64", contexts={"code": files}),
        read_steps(text, {}, platform="amd64", contexts={"code": other}),
        read_steps(text, {}, platform="amd64", arguments={"A": "1"}),
    ]

    assert len({read.image for read in reads}) == len(reads)


def test_a_linked_layer_does_not_depend_on_those_below() -> None:
    text = "FROM a AS b\nRUN x\nFROM c\nRUN {}\nCOPY --link --from=b / /\nCOPY --from=b / /\n"
    (one, link, copy), (other, same, moved) = (
        read_steps(text.format(step), {}, platform="amd64").layers for step in ("y", "z")
    )

    assert (one == other, link == same, copy == moved) == (False, True, False)


def test_a_stage_in_a_here_document_is_content() -> None:
    text = "RUN <<E\nFROM x AS y\n# c\nE\nRUN a\n"

    assert image(text) != image(text.replace("# c", "# d"))
    assert len(read_steps(f"FROM b\n{text}", {}, platform="amd64").steps) == 2
