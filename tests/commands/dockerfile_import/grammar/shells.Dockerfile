SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN [[ -n $BASH_VERSION ]] && echo "${BASH_VERSINFO[0]}" > /bash
RUN false | true || echo failed > /pipefail
SHELL ["/bin/sh", "-c"]
RUN echo $0 > /sh
RUN ["/bin/sh", "-c", "echo exec > /exec"]
RUN ["touch", "/a b"]
