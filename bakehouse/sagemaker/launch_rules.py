"""What is known not to work of launch settings: each rule, its source, and why we ask more than the SDK."""

from bakehouse.sagemaker.findings import Rule

_V2, _V3 = "sagemaker 2.257.7", "sagemaker-train 1.27.0"
_TOOLKIT = "sagemaker-training 5.1.4"
_API = "the API's model in botocore 1.44.5"
_GUIDE = "docs.aws.amazon.com/sagemaker/latest/dg"
_INSTANCES = "recipes/components/instance"
_REFUSED_LATER = "SageMaker refuses the job, after the code was uploaded"
_DROPPED = "the SDK drops it without a word"

# What the mapping says
UNKNOWN_STRATEGY = Rule("unknown-strategy", f"{_V2}: fw_utils.py, estimator.py", _DROPPED)
UNKNOWN_KEY = Rule("unknown-key", f"{_V2}: estimator.py; {_V3}: distributed.py", _DROPPED)
MAPPING = Rule(
    "mapping", f"{_V2}: fw_utils.py, estimator.py", "a class doesn't look at the other's strategies"
)
ENABLED = Rule(
    "enabled", f"{_V2}: estimator.py", "without `enabled`, or with a text, it is not what it looks like"
)
NUMBER = Rule(
    "number", f"{_V2}: estimator.py; {_V3}: distributed.py", "mpirun or torchrun fails on every host"
)
OPTIONS = Rule("mpi-options", f"{_TOOLKIT}: mpi.py", "mpirun gets other words than were meant, and fails")
SINGLE_COPY = Rule(
    "single-copy-repeated",
    f"{_TOOLKIT}: mpi.py",
    "mpirun refuses a parameter that is given twice",
)
ONE_LIBRARY = Rule("one-library", f"{_V2}: fw_utils.py", "a `smdistributed` without a library starts nothing")
LIBRARY = Rule("library", f"{_V2}: fw_utils.py")
MP_PARAMETERS = Rule(
    "mp-parameters",
    f"{_V2}: fw_utils.py",
    "it takes more than the library does, and looks at nothing that is off",
)
PARTITIONS = Rule(
    "partitions",
    "sagemaker-python-sdk: doc/api/training/smd_model_parallel_general.rst",
    "SMP 1.6 and newer call it `pipeline_parallel_degree` with PyTorch",
)

# Which strategies go together, and with what
FRAMEWORK = Rule(
    "framework", f"{_V2}: pytorch/estimator.py, estimator.py", "the image has nothing that starts it"
)
MIRRORED = Rule("mirrored-strategy", f"{_V2}: estimator.py")
PYTHON_SCRIPT = Rule(
    "python-script",
    f"{_V2}: fw_utils.py; {_V3}: model_trainer.py",
    "torchrun and mpi4py start Python programs",
)
ONE_STRATEGY = Rule(
    "one-strategy",
    f"{_TOOLKIT} and the toolkits of PyTorch and TensorFlow",
    "the toolkit starts the first alone",
)
DDP_IS_SMDDP = Rule("ddp-is-smddp", f"{_V2}: pytorch/estimator.py")
SMP_LAUNCHER = Rule(
    "smp-launcher", f"{_GUIDE}/model-parallel-sm-sdk.html", "SMP 1 is started by mpirun, SMP 2 by torchrun"
)
TRAINIUM = Rule("trainium", f"{_V2}: fw_utils.py")
P5 = Rule("p5-smdistributed", f"{_V2}: estimator.py")
SMD_IMAGE = Rule("smdistributed-image", f"{_V2}: estimator.py")
SMDDP_VERSION = Rule("smddp-version", f"{_V2}: fw_utils.py")
TORCH_VERSION = Rule("torch-distributed-version", f"{_V2}: fw_utils.py")
PROCESSES = Rule("processes-above-gpus", _INSTANCES, "ranks share a GPU, and NCCL refuses that")
SWALLOWED = Rule("distribution-swallowed", f"{_V2}: estimator.py", "the job runs one process a host")
OVERWRITTEN = Rule(
    "hyperparameter-overwritten",
    f"{_V2}: pytorch/estimator.py",
    "the distribution's value wins",
    is_error=False,
)
PARAMETER_SERVER = Rule(
    "parameter-server", f"{_V2}: fw_utils.py; {_TOOLKIT}", "it uses less than is paid for", is_error=False
)

# Instances and groups
GROUPS = Rule("instance-groups", f"{_API}; {_V2}: job.py", _REFUSED_LATER)
GROUP_OF_DISTRIBUTION = Rule("group-of-distribution", f"{_V2}: fw_utils.py, estimator.py")
GROUPS_OR_TYPE = Rule(
    "groups-or-type", f"{_V2}: job.py", "version 3 sends both, and SageMaker refuses the job"
)
GROUPS_FRAMEWORK = Rule(
    "groups-framework", f"{_GUIDE}/train-heterogeneous-cluster.html", "the toolkit knows no groups there"
)
GROUPS_DROPPED = Rule(
    "groups-dropped",
    f"{_V2}: pytorch/estimator.py",
    "torchrun starts in each group by itself",
    is_error=False,
)
GROUPS_WARM = Rule("groups-warm-pool", f"{_GUIDE}/train-heterogeneous-cluster.html", _REFUSED_LATER)
GROUPS_LOCAL = Rule("groups-local", f"{_GUIDE}/train-heterogeneous-cluster.html", "local mode has one group")
GROUPS_CHANNELS = Rule(
    "groups-channels", f"{_GUIDE}/train-heterogeneous-cluster-configure.html", _REFUSED_LATER
)
LOCAL_V3 = Rule(
    "local-of-version-3",
    f"{_V3}: model_trainer.py",
    "it has a training mode for that: as a type, SageMaker refuses it after the code was uploaded",
)
LOCAL_GPU = Rule("local-gpu-count", f"{_V2}: estimator.py")
GROUPS_V3 = Rule(
    "groups-of-version-3", f"{_V3}: container_drivers", "its drivers know no groups", is_error=False
)
RANKS_V3 = Rule(
    "mpi-ranks-of-version-3",
    f"{_V3}: container_drivers",
    "the number is that of the whole job",
    is_error=False,
)

INSTANCE = Rule("unknown-instance", _API, _REFUSED_LATER, is_error=False)

# EFA
RDMA = Rule("rdma-not-there", _INSTANCES, "libfabric aborts where it is told to use what is not there")
EFA = Rule("efa-not-there", _INSTANCES, "libfabric finds no provider, and NCCL doesn't start")
EFA_MISSING = Rule(
    "efa-not-set",
    f"{_TOOLKIT}: __init__.py; {_V3}: container_drivers",
    "the launcher doesn't know the type",
    is_error=False,
)

# What the image has
LAUNCHER = Rule(
    "launcher-not-there", "the release of the image", "the launcher isn't found when the job starts"
)
DRIVER = Rule(
    "driver-needs",
    f"{_V3}: container_drivers",
    "the driver of MPI starts sshd, and the script with mpi4py",
    is_error=False,
)
OPEN_MPI_5 = Rule("open-mpi-5", f"{_TOOLKIT}: mpi.py", "the toolkit speaks to Open MPI 4: mpirun fails")
HOST_NEEDS = Rule(
    "instance-not-fit",
    "the release of the image, the part in recipes/components",
    "its kernels don't run on the GPU",
)
PROCESSOR = Rule("processor-not-fit", _INSTANCES, "the programs in the image are for x86")
GPU = Rule(
    "gpu-unused", f"the release of the image, {_INSTANCES}", "GPUs are paid for, or missing", is_error=False
)
VERSION = Rule(
    "version-differs", "the release of the image", "the SDK believes what it is told", is_error=False
)

# Code
NO_SCRIPT = Rule(
    "no-script", f"{_V2}: pytorch/estimator.py; {_V3}: model_trainer.py", "the toolkit has no program"
)
COMMAND_FIRST = Rule(
    "command-first", f"{_V3}: model_trainer.py", "the command starts the job, and no driver", is_error=False
)
ENTRY_POINT = Rule(
    "entry-point-out-of-reach", f"{_TOOLKIT}: process.py, entry_point.py", "the toolkit doesn't start it"
)
CODE = Rule("code-not-found", f"{_V2}: fw_utils.py; {_V3}: model_trainer.py")
CODE_BAKED = Rule(
    "code-in-the-image", f"{_TOOLKIT}: files.py", "where /opt/ml/code has files, what is sent is not unpacked"
)
IMAGE_OR_VERSION = Rule("image-or-version", f"{_V2}: fw_utils.py")
PYTHON_2 = Rule("python-2", f"{_V2}: tensorflow/estimator.py, fw_utils.py", "no image has it any more")

# Limits of the API, and a compiler
LIMITS = Rule("limits", _API, _REFUSED_LATER)
KEEP_ALIVE = Rule("keep-alive", _API, _REFUSED_LATER)
COMPILER = Rule(
    "training-compiler", f"{_V2}: training_compiler/config.py", "it is frozen: nothing else ever runs with it"
)
COMPILER_EFA = Rule(
    "training-compiler-efa",
    f"{_V2}: pytorch/training_compiler/config.py",
    "its ranks are slow",
    is_error=False,
)

ALL: tuple[Rule, ...] = tuple(one for one in vars().values() if isinstance(one, Rule))
