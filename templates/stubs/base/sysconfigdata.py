"""Make this Python build wheels with the tags of the version that it reports."""

import io
import sys

build_time_vars: dict[str, object] = {}
with io.open_code("/usr/lib/bakehouse-rehearsal/sysconfigdata.py") as _file:
    exec(compile(_file.read(), __file__, "exec"))
build_time_vars["SOABI"] = f"cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu"
