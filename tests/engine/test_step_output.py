"""Commands of failed steps, and the lines that explain them: output of real builds, shortened."""

import pytest

from bakehouse.engine.step_output import command_of, telling_lines
from tests.support.data import text_of

MYSQL = text_of(__file__, "mysql")
PIP = """\
Looking in indexes: http://172.17.0.1:43121/simple/
Collecting a==1
  Downloading http://172.17.0.1:43121/files/a-1-py3-none-any.whl
ERROR: Could not find a version that satisfies the requirement torch==2.13.0+cpu (from versions: none)
ERROR: No matching distribution found for torch==2.13.0+cpu
"""
APT = "".join(
    f"Err:{number} http://172.17.0.1:43121/debian bookworm/main amd64 p{number}\n  404  Not Found\n"
    for number in range(1, 86)
) + (
    "E: Failed to fetch http://172.17.0.1:43121/debian/p85.deb  404  Not Found\n"
    "E: Unable to fetch some archives, maybe run apt-get update or try with --fix-missing?\n"
)
COMPILER = """\
g++ -c a.cpp
a.cpp:3:10: fatal error: mpi.h: No such file or directory
    3 | #include <mpi.h>
compilation terminated.
g++ -c b.cpp
b.cpp:1:1: error: unknown type name 'x'
make: *** [Makefile:7: a.o] Error 1
"""
PYTHON = """\
one
two
Traceback (most recent call last):
  File "<string>", line 1, in <module>
ModuleNotFoundError: No module named 'nosuch'
"""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            MYSQL,
            (
                "Exception: Can not find valid pkg-config name.",
                "Specify MYSQLCLIENT_CFLAGS and MYSQLCLIENT_LDFLAGS env vars manually",
            ),
        ),
        (
            PIP,
            (
                "ERROR: Could not find a version that satisfies the requirement torch==2.13.0+cpu "
                "(from versions: none)",
                "ERROR: No matching distribution found for torch==2.13.0+cpu",
            ),
        ),
        (COMPILER, ("a.cpp:3:10: fatal error: mpi.h: No such file or directory", "3 | #include <mpi.h>")),
        (PYTHON, ("ModuleNotFoundError: No module named 'nosuch'",)),
        ("cc: no such file\nmake: *** [all] Error 2\n", ("cc: no such file",)),
        ("make: *** [all] Error 2\n", ("make: *** [all] Error 2",)),
        ("about to end\nsecond\nthird\n", ("second", "third")),
        ("Collecting a\n", ("Collecting a",)),
        ("", ()),
    ],
)
def test_the_lines_that_matter(output: str, expected: tuple[str, ...]) -> None:
    assert telling_lines(output.splitlines()) == expected


def test_85_urls_of_the_file_server_are_not_repeated() -> None:
    lines = telling_lines(APT.splitlines())

    assert lines == ("E: Failed to fetch http://172.17.0.1:43121/debian/p85.deb  404  Not Found",)


def test_the_command_of_a_step() -> None:
    assert command_of("RUN --mount=type=secret,id=ca --network=none     make   install") == "make install"
    assert command_of("COPY --link --from=a /out/ /") == "COPY --link --from=a /out/ /"
    text = 'RUN --mount=type=secret,id=ca <<"END" (set -e...)'
    assert command_of(text, ["set -e", "echo one", "false", "END", "LABEL x"]) == "echo one; false"
    assert command_of(text) == "the steps of the recipe"
