"""Checks of NVIDIA DALI."""

from importlib.metadata import distributions


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
