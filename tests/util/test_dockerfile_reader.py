from bakehouse.util.dockerfile_reader import Instruction, instructions


def test_continued_lines_comments_flags_and_line_numbers() -> None:
    text = """\
# syntax=docker/dockerfile:1

from debian:12 AS base
RUN apt-get install \\
    # a comment does not end the instruction

    git
COPY --chown=1:1 --link src /app
"""
    assert list(instructions(text)) == [
        Instruction(3, "FROM", "debian:12 AS base"),
        Instruction(4, "RUN", "apt-get install     git"),
        Instruction(8, "COPY", "src /app", ("--chown=1:1", "--link")),
    ]


def test_here_documents() -> None:
    text = "RUN <<EOF\na\n  b\nEOF\nCOPY <<-'A' <<B /x/\n\tone\nA\ntwo\nB\nUSER root\n"

    assert list(instructions(text)) == [
        Instruction(1, "RUN", "<<EOF", (), ("a\n  b",)),
        Instruction(5, "COPY", "<<-'A' <<B /x/", (), ("one", "two")),
        Instruction(10, "USER", "root"),
    ]


def test_another_escape_character() -> None:
    text = "# escape=`\nRUN a `\n  b\nCOPY src C:\\\nUSER root"

    assert [instruction.text for instruction in instructions(text)] == ["a   b", "src C:\\", "root"]


def test_json_form() -> None:
    [entry, broken] = instructions('ENTRYPOINT ["python", "train.py"]\nCMD [python]\n')

    assert entry.words == ("python", "train.py")
    assert broken.words is None


def test_an_unfinished_file() -> None:
    assert list(instructions("RUN <<EOF\na")) == [Instruction(1, "RUN", "<<EOF", (), ("a",))]
    assert list(instructions("RUN a \\")) == [Instruction(1, "RUN", "a")]
    assert list(instructions("")) == []


def test_continued_lines_are_joined_as_they_are() -> None:
    [run] = instructions("RUN a b\\\nc \\  \n  'd \\\n e'")

    assert run.text == "a bc   'd  e'"


def test_two_escape_characters_do_not_continue_a_line() -> None:
    assert [each.text for each in instructions("RUN a \\\\\nRUN b")] == ["a \\\\", "b"]


def test_operators_that_look_like_here_documents() -> None:
    text = "RUN echo '<<EOF' $((1<<2)) x<<y <<<z\nRUN b"

    assert [each.heredocs for each in instructions(text)] == [(), ()]


def test_only_some_instructions_have_flags() -> None:
    [cmd, from_, health] = instructions(
        "CMD --x y\nFROM --platform=linux/amd64 a\nHEALTHCHECK --interval=5s CMD x"
    )

    assert (cmd.flags, cmd.text) == ((), "--x y")
    assert (from_.flags, from_.text) == (("--platform=linux/amd64",), "a")
    assert (health.flags, health.text) == (("--interval=5s",), "CMD x")


def test_lines_that_are_not_instructions_are_kept() -> None:
    assert [(each.keyword, each.text) for each in instructions("&& make")] == [("&&", "&& make")]
