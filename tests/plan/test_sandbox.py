"""A hostile template reads data, and nothing else: no file, no module, no other object's methods."""

import re
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.errors import RecipeError
from bakehouse.plan.dockerfile import render
from tests.support.errors import error_text, raised
from tests.support.trees import COMPONENTS, IMAGE, Tree, templates

UNSAFE = "access to attribute '{}' of '{}' object is unsafe."
HOSTILE = {
    "{{ ''.__class__.__mro__ }}": UNSAFE.format("__class__", "str"),
    "{{ ''['__class__'] }}": UNSAFE.format("__class__", "str"),
    "{{ ''|attr('__class__') }}": UNSAFE.format("__class__", "str"),
    "{{ cycler.__init__.__globals__.os.popen('touch RAN').read() }}": UNSAFE.format("__init__", "type"),
    "{{ joiner.__init__.__globals__ }}": UNSAFE.format("__init__", "type"),
    "{{ namespace.__init__.__globals__ }}": UNSAFE.format("__init__", "type"),
    "{{ packages.__call__.__globals__ }}": UNSAFE.format("__call__", "Macro"),
    "{{ packages._func.__globals__ }}": UNSAFE.format("_func", "Macro"),
    "{{ stage.file.__func__.__globals__ }}": UNSAFE.format("__func__", "method"),
    "{{ self.__init__.__globals__ }}": UNSAFE.format("__init__", "TemplateReference"),
    "{{ stage.source.joinpath('RAN').write_text('x') }}": UNSAFE.format("joinpath", "PosixPath"),
    "{{ stage.source.read_text() }}": UNSAFE.format("read_text", "PosixPath"),
    "{{ (stage.source / 'RAN').touch() }}": UNSAFE.format("touch", "PosixPath"),
    "{{ stage.source|attr('iterdir') }}": UNSAFE.format("iterdir", "PosixPath"),
    "{{ [stage.source]|map(attribute='parent')|join }}": UNSAFE.format("parent", "PosixPath"),
    "{{ stage.__setattr__('name', 'x') }}": UNSAFE.format("__setattr__", "Stage"),
    "{{ '{0.__class__}'.format(1) }}": UNSAFE.format("__class__", "int"),
    "{{ stage.artifacts.update({'a': 1}) }}": UNSAFE.format("update", "dict"),
    "{{ [1].append(2) }}": UNSAFE.format("append", "list"),
    "{% for x in range(10**9) %}{% endfor %}": (
        "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)."
    ),
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "maximum recursion depth exceeded",
    "{{ lipsum(n=10**9) }}": "'lipsum' is undefined",
    "{% include '/etc/passwd' %}": "/etc/passwd",
    "{% import 'os' as os %}": "os",
}
MAKES = re.compile(r"Environment[()]|jinja2\.Template\b")


@pytest.mark.parametrize("line", HOSTILE)
def test_a_hostile_template_is_an_error_with_its_line(
    line: str, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree.root)
    template = f"{{% block build %}}\nFROM venv AS torch\n{line}\n{{% endblock %}}\n"
    tree.component("torch", COMPONENTS["torch"], template)

    error = raised(RecipeError, tree.dockerfile)

    [diagnostic] = error.diagnostics
    assert diagnostic.label.startswith(HOSTILE[line])
    assert [*tree.root.rglob("RAN")] == []
    assert error_text(error) == (
        "error: cannot render the template of `torch`\n"
        "  --> components/torch/install.j2:3:1\n"
        "   |\n"
        f" 3 | {line}\n"
        f"   | {'^' * len(line)} {diagnostic.label}\n"
    )


def test_the_errors_of_all_templates_of_all_images_are_reported(tree: Tree) -> None:
    for name in ("torch", "toolkit"):
        template = f"{{% block build %}}\nFROM venv AS {name}\n{{{{ undefined }}}}\n{{% endblock %}}\n"
        tree.component(name, COMPONENTS[name], template)
    tree.image(IMAGE.replace('torch: "*", ', "").replace('variants: {torch: "cpu-*"}\n', ""), "other")

    for names in (["small"], ["other", "small"]):
        with pytest.raises(RecipeError) as caught:
            render(tree.plan(*names), templates())
        assert [diagnostic.message for diagnostic in caught.value.diagnostics] == [
            "cannot render the template of `toolkit`",
            "cannot render the template of `torch`",
        ]


def test_templates_read_data_and_call_pure_methods(tree: Tree) -> None:
    line = "# {{ stage.part.version.split('.')[0] }} {{ stage.facts.items()|list }} {{ 'ab'.upper() }}"
    template = f"{{% block build %}}\nFROM venv AS torch\n{line}\n{{% endblock %}}\n"
    tree.component("torch", COMPONENTS["torch"], template)

    assert "\n# 2 [] AB\n" in tree.dockerfile()


def test_no_other_environment_exists() -> None:
    modules = [path for path in HOME.glob("bakehouse/**/*.py") if MAKES.search(path.read_text())]

    assert [path.relative_to(HOME) for path in modules] == [Path("bakehouse/plan/sandbox.py")]
