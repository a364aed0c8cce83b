"""Time of HPCCM for an image with the same components: it gets all versions and writes the Dockerfile.

Run by `resolve_render.py` in an environment that has hpccm: `hpccm_recipe.py COUNT` renders it COUNT times.
"""

import json
import sys
import time

import hpccm
from hpccm.building_blocks import apt_get, gdrcopy, openmpi, pip, python
from hpccm.primitives import baseimage, environment, label, shell

EFA = "https://efa-installer.amazonaws.com/aws-efa-installer-1.47.0.tar.gz"
PLUGIN = "https://github.com/aws/aws-ofi-nccl/releases/download/v1.16.3/aws-ofi-nccl-1.16.3.tar.gz"


def dockerfile() -> str:
    hpccm.config.set_container_format("docker")
    stage = hpccm.Stage()
    stage += baseimage(image="nvidia/cuda:12.8.1-devel-ubuntu24.04", _as="base")
    stage += python(python2=False, devel=True)
    stage += apt_get(ospackages=["curl", "ca-certificates", "openssh-server", "openssh-client", "gcc", "g++"])
    stage += shell(
        commands=[
            f"curl -fsSL {EFA} | tar -xz -C /tmp",
            "cd /tmp/aws-efa-installer && ./efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify",
            "rm -rf /tmp/aws-efa-installer",
        ]
    )
    stage += openmpi(version="4.1.8", cuda=True, infiniband=False)
    stage += gdrcopy(version="2.5.1")
    stage += shell(
        commands=[
            f"curl -fsSL {PLUGIN} | tar -xz -C /tmp",
            "cd /tmp/aws-ofi-nccl-1.16.3 && ./configure --with-libfabric=/opt/amazon/efa && make install",
        ]
    )
    stage += pip(packages=["torch==2.10.0", "mpi4py==4.1.1", "sagemaker-training==5.1.4"], pip="pip3")
    stage += environment(
        variables={
            "SAGEMAKER_TRAINING_MODULE": "sagemaker_pytorch_container.training:main",
            "NVIDIA_VISIBLE_DEVICES": "all",
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        }
    )
    stage += label(metadata={"org.opencontainers.image.title": "pytorch-efa"})
    return str(stage)


def main() -> None:
    milliseconds = []
    for _ in range(int(sys.argv[1])):
        began = time.process_time()
        text = dockerfile()
        milliseconds.append(1000 * (time.process_time() - began))
    document = {"version": hpccm.__version__, "lines": len(text.splitlines()), "milliseconds": milliseconds}
    print(json.dumps(document))


if __name__ == "__main__":
    main()
