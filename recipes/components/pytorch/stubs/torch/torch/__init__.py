"""A stub."""

__version__ = "@version@"
_CUDA, _NCCL = "@cuda@", "@nccl@"


class version:
    cuda = None if _CUDA.startswith("@") else ".".join(_CUDA.split(".")[:2])


class cuda:
    class nccl:
        @staticmethod
        def version():
            return () if _NCCL.startswith("@") else tuple(map(int, _NCCL.split(".")))

    @staticmethod
    def is_available():
        return False
