"""Time of HPCCM for an image with the same components: it gets all versions and writes the Dockerfile.

Run by `resolve_render.py` in an environment that has hpccm: `hpccm_recipe.py COUNT VERSIONS` renders it COUNT
times, with the versions of Bakehouse's image as JSON.
"""

import json
import sys
import time

import hpccm
from hpccm.building_blocks import apt_get, pip, python
from hpccm.primitives import baseimage, environment, label, shell


def dockerfile(versions: dict[str, str]) -> str:
    efa = f"https://efa-installer.amazonaws.com/aws-efa-installer-{versions['efa']}.tar.gz"
    compat = f"cuda-compat-{versions['cuda-compat'].replace('.', '-')}"
    hpccm.config.set_container_format("docker")
    stage = hpccm.Stage()
    stage += baseimage(image=f"nvidia/cuda:{versions['nvidia-cuda']}-base-ubuntu24.04", _as="base")
    stage += python(python2=False, devel=True)
    stage += apt_get(
        ospackages=[compat, "curl", "ca-certificates", "openssh-server", "openssh-client", "gcc", "g++"]
    )
    stage += shell(
        commands=[
            f"curl -fsSL {efa} | tar -xz -C /tmp",
            "cd /tmp/aws-efa-installer && ./efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify",
            "rm -rf /tmp/aws-efa-installer",
        ]
    )
    packages = [
        "torch",
        "torchvision",
        "torchaudio",
        "mpi4py",
        "sagemaker-training",
        "sagemaker-pytorch-training",
    ]
    stage += pip(packages=[f"{name}=={versions[name]}" for name in packages], pip="pip3")
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
    versions = json.loads(sys.argv[2])
    for _ in range(int(sys.argv[1])):
        began = time.process_time()
        text = dockerfile(versions)
        milliseconds.append(1000 * (time.process_time() - began))
    document = {"version": hpccm.__version__, "dockerfile": text, "milliseconds": milliseconds}
    print(json.dumps(document))


if __name__ == "__main__":
    main()
