"""Checks of NVIDIA DALI."""

import unittest
from importlib.metadata import distributions
from pathlib import Path


def installed() -> str:
    versions = {package.name: package.version for package in distributions()}
    (version,) = {versions[name] for name in versions if name.startswith("nvidia-dali-cuda")}
    return version


def check_prepares_data_without_gpu() -> None:
    import numpy
    from nvidia.dali import fn, pipeline_def, types

    def number(sample: types.SampleInfo) -> numpy.ndarray:
        return numpy.array([sample.idx_in_batch], numpy.int32)

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def doubled():  # type: ignore[no-untyped-def]
        return fn.external_source(number, batch=False) * 2

    pipeline = doubled()
    pipeline.build()
    (output,) = pipeline.run()
    assert [int(output.at(index)[0]) for index in range(2)] == [0, 2]


def check_prepares_data_on_a_gpu() -> None:
    if not Path("/dev/nvidiactl").exists():
        raise unittest.SkipTest("no GPU was given; use `--gpus`")
    import numpy
    from nvidia.dali import fn, pipeline_def, types

    def image(sample: types.SampleInfo) -> numpy.ndarray:
        return numpy.full((8, 8, 3), sample.idx_in_batch, numpy.uint8)

    @pipeline_def(batch_size=2, num_threads=1, device_id=0)
    def doubled():  # type: ignore[no-untyped-def]
        return fn.resize(fn.external_source(image, batch=False).gpu(), size=(4, 4)) * 2

    pipeline = doubled()
    pipeline.build()
    (output,) = pipeline.run()
    assert "GPU" in type(output).__name__, f"the result is a {type(output).__name__}"
    results = output.as_cpu()
    for index in range(2):
        values = numpy.unique(numpy.array(results.at(index))).tolist()
        assert values == [2 * index], f"image {index} has {values}"
