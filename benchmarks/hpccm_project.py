"""Dockerfile of a project on an image, written by HPCCM: `hpccm_project.py IMAGE`.

Run by `own_code.py` in an environment that has hpccm.
"""

import sys

import hpccm
from hpccm.primitives import baseimage, copy, shell

SECRETS = "--mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca"
INSTALL = "python3 -m pip --python /opt/venv/bin/python install --no-cache-dir -r /tmp/requirements.txt"


def dockerfile(image: str) -> str:
    hpccm.config.set_container_format("docker")
    stage = hpccm.Stage()
    # HPCCM takes the distribution from the name of the image.
    stage += baseimage(image=image, _distro="ubuntu24")
    stage += copy(src="requirements.txt", dest="/tmp/")
    stage += shell(commands=[INSTALL], _arguments=SECRETS)
    stage += copy(src="src/", dest="/opt/ml/code/")
    return str(stage)


if __name__ == "__main__":
    print(dockerfile(sys.argv[1]))
