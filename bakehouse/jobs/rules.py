"""Rules for training jobs, and the findings where a job violates them.

Each rule names its source. Many rules are stricter than the SageMaker SDK and say why.
"""

from dataclasses import dataclass

from bakehouse.errors import Diagnostic, UsageError


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for the settings of a job."""

    name: str
    source: str
    """Program or document that the rule comes from."""
    beyond: str = ""
    """Reason for a rule that the SDK does not enforce; empty if it does."""
    is_error: bool = True
    """A violation stops the job. Otherwise it is a warning: the job runs, but probably not as intended."""
    is_known: bool = True
    """False if it is not known whether the job violates it."""


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """A violation of a rule."""

    rule: Rule
    message: str
    """One clause without a period."""
    hint: str = ""

    @property
    def is_error(self) -> bool:
        return self.rule.is_error

    @property
    def diagnostic(self) -> Diagnostic:
        """The finding with its rule and source, for the user."""
        facts = (("rule", self.rule.name), ("source", self.rule.source))
        return Diagnostic(self.message, facts=facts, hint=self.hint)


class Findings:
    """Collects findings in order, without duplicates."""

    def __init__(self) -> None:
        self._findings: dict[RuleViolation, None] = {}

    def add(self, rule: Rule, message: str, hint: str = "") -> None:
        self._findings[RuleViolation(rule, message, hint)] = None

    def at(self, rule: Rule, path: str, message: str, hint: str = "") -> None:
        """Add a finding about the setting at `path`."""
        self.add(rule, f"`{path}` {message}", hint)

    def extend(self, findings: "Findings") -> None:
        self._findings |= findings._findings

    @property
    def errors(self) -> tuple[RuleViolation, ...]:
        return tuple(finding for finding in self._findings if finding.is_error)

    @property
    def warnings(self) -> tuple[RuleViolation, ...]:
        return tuple(finding for finding in self._findings if not finding.is_error)

    def raise_errors(self) -> None:
        """Raise UsageError if there are errors."""
        if self.errors:
            raise UsageError.of(*(Diagnostic(error.message, hint=error.hint) for error in self.errors))


_V2, _V3 = "sagemaker 2.257.7", "sagemaker-train 1.27.0"
_TOOLKIT = "sagemaker-training 5.1.4"
_TOOLKITS = "toolkit.yaml of recipes/components/sagemaker-training"
_ALL_TOOLKITS = "toolkit.yaml of recipes/components/sagemaker-{training,pytorch-training,tensorflow-training}"
_DRIVERS = "toolkit.yaml of recipes/components/sagemaker-drivers"
_API = "the API's model in botocore 1.44.5"
_DOCUMENTED = "botocore 1.44.5, documentation"
_GUIDE = "docs.aws.amazon.com/sagemaker/latest/dg"
_INSTANCES = "recipes/components/instance"
RELEASE = "the release of the image"
_REFUSED_LATER = "SageMaker rejects the job after the code is uploaded"
_DROPPED = "the SDK ignores it silently"

# Content of `distribution`
UNKNOWN_STRATEGY = Rule("unknown-strategy", f"{_V2}: fw_utils.py, estimator.py", _DROPPED)
UNKNOWN_KEY = Rule("unknown-key", f"{_V2}: estimator.py; {_V3}: distributed.py", _DROPPED)
MAPPING = Rule(
    "mapping",
    f"{_V2}: fw_utils.py, estimator.py",
    "each estimator class ignores the strategies of the others",
)
ENABLED = Rule(
    "enabled", f"{_V2}: estimator.py", "a strategy without `enabled` is off, and any text counts as true"
)
NUMBER = Rule(
    "number", f"{_V2}: estimator.py; {_V3}: distributed.py", "mpirun or torchrun fails on every host"
)
OPTIONS = Rule("mpi-options", f"{_TOOLKIT}: mpi.py", "mpirun receives other options and fails")
MCA_REPEATED = Rule(
    "mca-repeated",
    f"{_TOOLKIT}: mpi.py, smdataparallel.py; {_V3}: container_drivers; mpirun of Open MPI 4.1.8",
    "mpirun rejects an MCA parameter that is set twice, even to the same value",
)
MPI_RANKS = Rule(
    "mpi-ranks-repeated",
    f"{_TOOLKIT}: mpi.py, smdataparallel.py; {_V3}: container_drivers",
    "mpirun uses the last number of ranks, and adds hosts to those of the job",
)
ONE_LIBRARY = Rule(
    "one-library", f"{_V2}: fw_utils.py", "`smdistributed` without a library starts no launcher"
)
LIBRARY = Rule("library", f"{_V2}: fw_utils.py")
MP_PARAMETERS = Rule(
    "mp-parameters",
    f"{_V2}: fw_utils.py",
    "the SDK accepts more values than the library, and does not check disabled strategies",
)
PARTITIONS = Rule(
    "partitions",
    f"{_GUIDE}/model-parallel-sm-sdk.html",
    "SMP 1.6 renamed it to `pipeline_parallel_degree` with PyTorch; other pages of the guide use both",
    is_error=False,
)
SMP_REQUIRED = Rule(
    "smp-required", f"{_GUIDE}/model-parallel-sm-sdk.html", "SMP 1 needs them, but the SDK does not check"
)
SMP_DEGREE = Rule(
    "smp-degree",
    f"{_GUIDE}/model-parallel-sm-sdk.html, distributed-model-parallel-v2-reference.html, "
    "model-parallel-core-features-v2-{tensor,context,expert}-parallelism.html",
    "SMP cannot divide the ranks of the job",
)
_SMP_PARAMETERS = "parameters.yaml of recipes/components/smp and recipes/components/aws-smp2"
SMP_PARAMETER = Rule("smp-parameter", _SMP_PARAMETERS, "SMP rejects parameters that it does not have")
SMP_UNDOCUMENTED = Rule(
    "smp-undocumented", _SMP_PARAMETERS, "SMP rejects parameters that it does not have", is_error=False
)

# Combinations of strategies
FRAMEWORK = Rule("framework", f"{_V2}: pytorch/estimator.py, estimator.py", "the image cannot start it")
MIRRORED = Rule("mirrored-strategy", f"{_V2}: estimator.py")
PYTHON_SCRIPT = Rule(
    "python-script",
    f"{_V2}: fw_utils.py; {_V3}: model_trainer.py",
    "torchrun and mpi4py start only Python programs",
)
ONE_STRATEGY = Rule(
    "one-strategy",
    f"{_TOOLKIT} and the toolkits of PyTorch and TensorFlow",
    "the toolkit starts only the first one",
)
DDP_IS_SMDDP = Rule("ddp-is-smddp", f"{_V2}: pytorch/estimator.py")
SMP_LAUNCHER = Rule(
    "smp-launcher", f"{_GUIDE}/model-parallel-sm-sdk.html", "SMP 1 needs mpirun, and SMP 2 needs torchrun"
)
TRAINIUM = Rule("trainium", f"{_V2}: fw_utils.py")
P5 = Rule("p5-smdistributed", f"{_V2}: estimator.py")
SMD_IMAGE = Rule("smdistributed-image", f"{_V2}: estimator.py")
SMDDP_INSTANCE = Rule(
    "smddp-instance",
    f"{_V2}: fw_utils.py; {_GUIDE}/distributed-data-parallel-support.html",
    "the SDK has the list, but does not check it",
)
SMDDP_UNLISTED = Rule(
    "smddp-unlisted",
    f"{_GUIDE}/distributed-data-parallel-support.html",
    "AWS's guide no longer lists the type, and no source states which releases work on it",
    is_error=False,
    is_known=False,
)
SMDDP_VERSION = Rule("smddp-version", f"{_V2}: fw_utils.py")
TORCH_VERSION = Rule("torch-distributed-version", f"{_V2}: fw_utils.py")
PROCESSES = Rule("processes-above-gpus", _INSTANCES, "NCCL does not support ranks that share a GPU")
SWALLOWED = Rule(
    "distribution-swallowed",
    f"{_V2}: estimator.py, huggingface/estimator.py",
    "the SDK drops it silently",
)
OVERWRITTEN = Rule(
    "hyperparameter-overwritten",
    f"{_V2}: pytorch/estimator.py",
    "the value of `distribution` overrides it",
    is_error=False,
)
LEGACY_KERAS = Rule(
    "keras-fit",
    "github.com/keras-team/keras/issues/20585; keras.yaml of recipes/components/tensorflow",
    "`fit` of Keras 3 fails on several hosts; a loop of the script's own does not",
    is_error=False,
)
PARAMETER_SERVER = Rule(
    "parameter-server", f"{_V2}: fw_utils.py; {_TOOLKIT}", "paid resources stay idle", is_error=False
)

# Instances and instance groups
GROUPS = Rule("instance-groups", f"{_API}; {_V2}: job.py", _REFUSED_LATER)
GROUP_OF_DISTRIBUTION = Rule("group-of-distribution", f"{_V2}: fw_utils.py, estimator.py")
GROUPS_OR_TYPE = Rule("groups-or-type", f"{_V2}: job.py", "SDK v3 sends both, and SageMaker rejects the job")
GROUPS_FRAMEWORK = Rule(
    "groups-framework",
    f"{_GUIDE}/train-heterogeneous-cluster.html",
    "the toolkit does not support groups there",
)
GROUPS_DROPPED = Rule(
    "groups-dropped",
    f"{_V2}: pytorch/estimator.py",
    "torchrun starts separately in each group",
    is_error=False,
)
GROUPS_WARM = Rule("groups-warm-pool", f"{_GUIDE}/train-heterogeneous-cluster.html", _REFUSED_LATER)
GROUPS_LOCAL = Rule(
    "groups-local", f"{_GUIDE}/train-heterogeneous-cluster.html", "local mode supports one group"
)
GROUPS_CHANNELS = Rule(
    "groups-channels", f"{_GUIDE}/train-heterogeneous-cluster-configure.html", _REFUSED_LATER
)
LOCAL_V3 = Rule(
    "local-of-version-3",
    f"{_V3}: model_trainer.py",
    "SageMaker rejects a local instance type after the code is uploaded",
)
LOCAL_GPU = Rule("local-gpu-count", f"{_V2}: estimator.py")
GROUPS_V3 = Rule(
    "groups-of-version-3", f"{_V3}: container_drivers", "its drivers ignore groups", is_error=False
)
TAGS_V3 = Rule("tags-of-version-3", f"{_V3}: model_trainer.py")
VARIABLES_V3 = Rule(
    "variables-of-version-3",
    f"{_V3}: container_drivers/scripts/environment.py",
    "the job's start script reads its variables with a shell, which ends",
)
RANKS_V3 = Rule(
    "mpi-ranks-of-version-3",
    f"{_V3}: container_drivers",
    "the number counts the ranks of the whole job",
    is_error=False,
)

INSTANCE_NAME = Rule("instance-name", _API, _REFUSED_LATER)
INSTANCE = Rule("unknown-instance", _API, _REFUSED_LATER, is_error=False, is_known=False)
INSTANCE_FACTS = Rule(
    "instance-not-known",
    _INSTANCES,
    "the catalogue lacks a fact about the type, so it cannot be compared with the image",
    is_error=False,
    is_known=False,
)

# EFA
RDMA = Rule("rdma-not-there", _INSTANCES, "libfabric aborts if RDMA is requested but unavailable")
RDMA_IGNORED = Rule(
    "rdma-ignored",
    "github.com/ofiwg/libfabric/pull/8186",
    "libfabric before 1.17 ignores it, and newer releases abort",
    is_error=False,
)
EFA = Rule("efa-not-there", _INSTANCES, "libfabric finds no provider, so NCCL does not start")
EFA_UNUSED = Rule("efa-unused", _INSTANCES, "the hosts communicate over TCP, which is slower", is_error=False)
EFA_UNKNOWN = Rule(
    "efa-not-known",
    _INSTANCES,
    "the hosts communicate over TCP if the image lacks EFA or its NCCL plugin",
    is_error=False,
    is_known=False,
)
EFA_MISSING = Rule(
    "efa-not-set",
    f"{_TOOLKITS}; {_DRIVERS}",
    "the launcher does not set it for this type",
    is_error=False,
)

_VARIABLES = "recipes/variables.yaml"
VARIABLE = Rule("variable", _VARIABLES, "the variable changes what the job uses", is_error=False)
VARIABLE_UNUSED = Rule(
    "variable-overwritten", f"{_TOOLKITS}; {_DRIVERS}", "the launcher sets another value", is_error=False
)
VARIABLE_UNKNOWN = Rule(
    "variable-not-known",
    _VARIABLES,
    "no source states what the value does to the job",
    is_error=False,
    is_known=False,
)

# Content of the image
LAUNCHER = Rule("launcher-not-there", RELEASE, "the launcher is missing when the job starts")
DRIVER = Rule(
    "driver-needs",
    f"{_V3}: container_drivers",
    "the MPI driver needs sshd and mpi4py",
    is_error=False,
)
SHELL = Rule(
    "argument-in-a-shell",
    _TOOLKITS,
    "the shell splits, expands or cuts the value",
    is_error=False,
)
TOOLKIT = Rule(
    "launcher-of-the-toolkit", _ALL_TOOLKITS, "the toolkit starts one process on each host instead"
)
LOST_STATUS = Rule("lost-exit-status", _TOOLKITS, "SageMaker reports the job as completed", is_error=False)
FLAG = Rule(
    "flag-with-a-value",
    f"{_TOOLKIT}: mapping.py; {_V3}: container_drivers/common/utils.py",
    "argparse ends the script, because the job gives each hyperparameter with a value",
    is_error=False,
)
_TORCHRUN = "torchrun.yaml of recipes/components/pytorch"
TORCHRUN = Rule(
    "torchrun-abbreviation", _TORCHRUN, "argparse ends torchrun at an ambiguous argument of the script"
)
TORCHRUN_UNKNOWN = Rule(
    "torchrun-abbreviation-not-known",
    _TORCHRUN,
    "argparse of some releases of Python ends torchrun at an ambiguous argument of the script",
    is_error=False,
)
OCI_MANIFEST = Rule(
    "oci-manifest",
    "github.com/aws/amazon-sagemaker-feedback/issues/180",
    "SageMaker endpoints refuse it; whether training jobs do is not known",
    is_error=False,
)
OPEN_MPI_5 = Rule(
    "open-mpi-5", f"{_TOOLKIT}: mpi.py", "the toolkit uses options of Open MPI 4, so mpirun fails"
)
HOST_NEEDS = Rule(
    "instance-not-fit",
    f"{RELEASE}, the component in recipes/components",
    "its programs do not run on the GPU or the Neuron device",
)
PROCESSOR = Rule("processor-not-fit", _INSTANCES, "the programs in the image are for another processor")
TARGETS = Rule(
    "targets",
    "`targets` and `required` of the recipe",
    "the image is made for hosts with GPUs",
)
OTHER_TARGET = Rule(
    "other-target", "`targets` of the recipe", "the image is not made for this type", is_error=False
)
GPU = Rule("gpu-unused", f"{RELEASE}, {_INSTANCES}", "GPUs are idle or missing", is_error=False)
NEURON = Rule(
    "neuron-unused",
    f"{RELEASE}, {_INSTANCES}",
    "Neuron devices are idle or missing",
    is_error=False,
)
VERSION = Rule(
    "version-differs",
    RELEASE,
    "the SDK does not compare it with the image",
    is_error=False,
)

IMAGE_UNKNOWN = Rule(
    "image-unknown",
    "the releases of the project, the bases in recipes/components",
    "its launchers and versions are unknown, so only the settings are checked",
    is_error=False,
    is_known=False,
)

# Arguments in a file
UNKNOWN_ARGUMENT = Rule("unknown-argument", f"{_V2}: estimator.py; {_V3}: model_trainer.py")
REQUEST = Rule("request", _API)

# Code
NO_SCRIPT = Rule(
    "no-script",
    f"{_V2}: pytorch/estimator.py; {_V3}: model_trainer.py",
    "the toolkit has no program to start",
)
COMMAND_FIRST = Rule(
    "command-first", f"{_V3}: model_trainer.py", "the command starts the job, not the driver", is_error=False
)
ENTRY_POINT = Rule(
    "entry-point-out-of-reach", f"{_TOOLKIT}: process.py, entry_point.py", "the toolkit does not start it"
)
CODE = Rule("code-not-found", f"{_V2}: fw_utils.py; {_V3}: model_trainer.py")
UPLOADED = Rule(
    "uploaded-files",
    f"{_V2}: fw_utils.py; {_V3}: model_trainer.py",
    "the SDK uploads the whole directory, and does not read `.dockerignore`",
    is_error=False,
)
CODE_BAKED = Rule(
    "code-in-the-image",
    f"{_TOOLKIT}: files.py",
    "if `/opt/ml/code` has files, the toolkit does not unpack your code",
)
IMAGE_OR_VERSION = Rule("image-or-version", f"{_V2}: fw_utils.py")
PYTHON_2 = Rule("python-2", f"{_V2}: tensorflow/estimator.py, fw_utils.py", "images no longer contain it")

# Fields of the API. `_DOCUMENTED` is the text that botocore has about each field.
FIELD = Rule("api-field", _API, _REFUSED_LATER)
MAX_RUN = Rule("max-run", f"{_DOCUMENTED} of MaxRuntimeInSeconds", _REFUSED_LATER)
SPOT_WAIT = Rule("spot-wait", f"{_DOCUMENTED} of MaxWaitTimeInSeconds; {_V2}: estimator.py", _REFUSED_LATER)
SPOT_UNUSED = Rule(
    "spot-unused",
    "answer of SageMaker: github.com/aws/sagemaker-python-sdk/issues/4140",
    _REFUSED_LATER,
)
SPOT_WARM = Rule(
    "spot-warm-pool",
    f"{_GUIDE}/train-warm-pools.html",
    "AWS does not document that SageMaker accepts both",
    is_error=False,
)
SPOT_CHECKPOINTS = Rule(
    "spot-checkpoints",
    f"{_GUIDE}/model-managed-spot-training.html",
    "SageMaker starts it again from the beginning",
    is_error=False,
)
PREFERENCES = Rule("instance-preferences", f"{_DOCUMENTED} of InstancePreferences", _REFUSED_LATER)
AUGMENTED = Rule("augmented-manifest", f"{_DOCUMENTED} of S3DataType", _REFUSED_LATER)
COMPRESSED = Rule("compressed-channel", f"{_DOCUMENTED} of CompressionType", _REFUSED_LATER)
VALUES = Rule(
    "documented-values",
    f"{_DOCUMENTED} of ProfilingIntervalInMilliseconds, SequenceLength",
    _REFUSED_LATER,
)
VOLUME_KEY = Rule("volume-key", f"{_DOCUMENTED} of VolumeKmsKeyId; {_V2}: utils.py", _REFUSED_LATER)
UNIQUE = Rule(
    "unique-names",
    f"{_DOCUMENTED} of Key of tags, RuleConfigurationName, CollectionName, InstancePreferences",
    _REFUSED_LATER,
)
EULA = Rule("accept-eula", f"{_DOCUMENTED} of AcceptEula", _REFUSED_LATER)
PENDING = Rule(
    "max-pending",
    f"{_DOCUMENTED} of MaxPendingTimeInSeconds",
    "the limit has no effect without accelerators",
    is_error=False,
)
ISOLATED = Rule(
    "isolated-requirements",
    f"{_GUIDE}/mkt-algo-model-internet-free.html",
    "pip reaches no package index, so the job ends unless the image has all packages",
    is_error=False,
)
READ_ONLY = Rule("read-only", f"{_DOCUMENTED} of SelectedInstanceType", _REFUSED_LATER)
VPC = Rule("vpc", f"{_API}; {_V2}: vpc_utils.py", _REFUSED_LATER)
REPOSITORY = Rule("private-repository", f"{_DOCUMENTED} of TrainingRepositoryAccessMode", _REFUSED_LATER)
CHECKPOINTS = Rule("checkpoints", _API, _REFUSED_LATER)
ALGORITHM = Rule("algorithm-or-image", f"{_DOCUMENTED} of AlgorithmName", _REFUSED_LATER)

# Limits of the API, and SageMaker Training Compiler
LIMITS = Rule("limits", _API, _REFUSED_LATER)
KEEP_ALIVE = Rule("keep-alive", _API, _REFUSED_LATER)
COMPILER = Rule(
    "training-compiler",
    f"{_V2}: training_compiler/config.py",
    "it is no longer developed, and supports only these versions",
)
COMPILER_EFA = Rule(
    "training-compiler-efa",
    f"{_V2}: pytorch/training_compiler/config.py",
    "communication between ranks is slow",
    is_error=False,
)

ALL: tuple[Rule, ...] = tuple(value for value in vars().values() if isinstance(value, Rule))
