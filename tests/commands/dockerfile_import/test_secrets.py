"""No secret of a Dockerfile gets into the recipe or the report, whichever instruction has it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse.catalog.catalog import Catalog
from bakehouse.commands.dockerfile_import.recipe_text import import_dockerfile
from bakehouse.commands.dockerfile_import.translate import DockerfileBuild
from tests.commands.dockerfile_import.translated_dockerfile import Translated

WORD = "sw0rdfish7"
FORMS = """\
ARG TOKEN={0}\\nRUN curl -H "Authorization: Bearer $TOKEN" https://x.example/a
ARG NPM_TOKEN\\nENV NPM_AUTH_TOKEN={0}
ENV PIP_INDEX_URL=https://ada:{0}@x.example/simple
ENV PIP_INDEX_URL https://{0}@x.example/simple
ARG INDEX=https://ada:{0}@x.example/simple\\nRUN pip install -i $INDEX tqdm
RUN pip install --index-url https://ada:{0}@x.example/simple tqdm
RUN pip install --extra-index-url=https://{0}@x.example/simple tqdm
RUN pip install git+https://{0}@x.example/a.git
RUN pip install "a @ git+https://ada:{0}@x.example/a.git"
RUN git clone https://oauth2:{0}@x.example/a
RUN git config --global url."https://{0}@x.example/".insteadOf https://x.example/
RUN curl -H 'Authorization: token {0}' -O https://x.example/a
RUN curl --header "PRIVATE-TOKEN: {0}" -O https://x.example/a
RUN curl -fsSL -u ada:{0} -O https://x.example/a
RUN echo "machine x.example login ada password {0}" > ~/.netrc
RUN export API_KEY={0} && make
RUN HF_TOKEN='{0}' python x.py
RUN cli login --token {0}
RUN <<E\\nexport DB_PASSWORD={0}\\nmake\\nE
RUN cat <<E > ~/.netrc\\nmachine x.example login ada password {0}\\nE
COPY <<E /root/.netrc\\nmachine x.example login ada password {0}\\nE
COPY <<'E' /root/.config/pip/pip.conf\\n[global]\\nindex-url = https://ada:{0}@x.example/simple\\nE
ADD https://ada:{0}@x.example/a.tar.gz /opt/
COPY src /opt/ml/code\\nCMD python /opt/ml/code/train.py --token={0}
RUN apt-get -o Acquire::http::Proxy=http://ada:{0}@x.example install git
"""


@pytest.mark.parametrize("form", FORMS.splitlines())
def test_a_secret_gets_nowhere_and_is_named(form: str, catalog: Catalog, context: Path) -> None:
    build = DockerfileBuild(context / "Dockerfile", context)
    build.path.write_text("FROM debian:12\n" + form.replace("\\n", "\n").format(WORD) + "\n")

    files, proposal, _ = import_dockerfile(build, "Dockerfile", context / "images/x.yaml", catalog)

    checks = proposal.account.checks()
    shown = "".join(f"{row.text} {row.detail}\n" for row in (*proposal.account.rows(), *checks))
    assert WORD not in "".join(files.values()) + shown
    assert checks


@pytest.mark.parametrize(
    "line",
    [
        "RUN adduser --disabled-password --gecos '' ada",
        "RUN git clone git@x.example:a/b && cd b && make",
        "RUN TOKENIZERS_PARALLELISM=false python x.py",
        "RUN --mount=type=cache,target=/root/.cache python x.py",
        "RUN curl -fsSL https://x.example/a?x=1@2 -o a",
    ],
)
def test_a_step_without_a_secret_is_kept(line: str, translated: Callable[[str], Translated]) -> None:
    assert len(translated(f"FROM debian:12\n{line}\n").steps) == 1
