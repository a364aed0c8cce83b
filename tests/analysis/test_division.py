"""Division of an image's bytes by component and directory."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bakehouse.analysis.division import OwnedDirectory, divide
from bakehouse.analysis.layers import LayerContents, LayerFile, parents


def contents(**sizes: int) -> LayerContents:
    return LayerContents(tuple(LayerFile(path, size) for path, size in sizes.items()))


def test_a_large_directory_is_listed_apart_from_the_rest_of_its_parent() -> None:
    layer = contents(**{"/usr/lib/torch/a": 600, "/usr/lib/torch/b": 100, "/usr/lib/c": 200, "/bin/d": 100})

    assert divide([("torch", layer)]) == (
        OwnedDirectory("torch", "/usr/lib/torch", 700, 2),
        OwnedDirectory("torch", "/usr/lib", 200, 1),
        OwnedDirectory("torch", "/bin", 100, 1),
    )


def test_small_directories_count_for_the_directory_above_them() -> None:
    layer = contents(**{"/usr/a/x": 4, "/usr/b/x": 3, "/usr/lib/big": 993})

    assert divide([("torch", layer)]) == (
        OwnedDirectory("torch", "/usr/lib", 993, 1),
        OwnedDirectory("torch", "/usr", 7, 2),
    )


def test_a_component_without_large_directories_has_the_directory_of_all_its_files() -> None:
    small = contents(**{"/opt/mpi/bin/a": 1, "/opt/mpi/lib/b": 1})

    assert divide([("base", contents(**{"/x": 998})), ("mpi", small)]) == (
        OwnedDirectory("base", "/", 998, 1),
        OwnedDirectory("mpi", "/opt/mpi", 2, 2),
    )


def test_layers_of_one_component_are_divided_together() -> None:
    layers = [("own", contents(**{"/a/x": 1})), ("own", contents(**{"/a/y": 1})), ("empty", contents())]

    assert divide(layers) == (OwnedDirectory("own", "/a", 2, 2),)


PATHS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=5).map(
    lambda names: f"/{'/'.join(names)}/file"
)
FILES = st.builds(LayerFile, PATHS, st.integers(0, 1000))
LAYERS = st.lists(
    st.tuples(
        st.sampled_from(["torch", "mpi"]), st.lists(FILES, max_size=30, unique_by=lambda file: file.path)
    ),
    max_size=4,
)


@given(LAYERS)
def test_each_file_counts_once_for_the_deepest_listed_directory(
    layers: list[tuple[str, list[LayerFile]]],
) -> None:
    divided = divide((owner, LayerContents(tuple(files))) for owner, files in layers)
    listed = {(each.owner, each.path) for each in divided}
    sizes, counts = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for owner, files in layers:
        for file in files:
            # `/` may be replaced by the directory that has all files of the owner
            path = next(path for path in parents(file.path) if (owner, path) in listed)
            sizes[owner, path] += file.bytes
            counts[owner, path] += 1

    assert {(each.owner, each.path): (each.bytes, each.files) for each in divided} == {
        key: (sizes[key], counts[key]) for key in counts
    }


@given(LAYERS)
def test_every_listed_directory_but_one_of_each_component_is_large(
    layers: list[tuple[str, list[LayerFile]]],
) -> None:
    divided = divide((owner, LayerContents(tuple(files))) for owner, files in layers)
    total = sum(each.bytes for each in divided)
    small = Counter(each.owner for each in divided if each.bytes < 0.005 * total)

    assert max(small.values(), default=0) <= 1
