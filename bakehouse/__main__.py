"""The command `bake`, and `python -P -m bakehouse`. On Windows itself, it prints an error.

It checks this before it imports Bakehouse, because modules such as `fcntl` do not exist on Windows.
"""

import sys

_WINDOWS = """\
error: Bakehouse does not run on Windows itself
  because images are for Linux, and it needs the files and locks of a POSIX system

hint: run `wsl --install`, then install Python and a container engine in WSL2 and run the command there
"""


def main() -> None:
    """Run the command line of this process."""
    if sys.platform in ("win32", "cygwin"):
        sys.stderr.write(_WINDOWS)
        sys.exit(1)
    from bakehouse.cli import main

    main.main()


if __name__ == "__main__":
    if not sys.flags.safe_path:
        # As with `bake`, modules in the current directory must not replace those of Python and Bakehouse
        del sys.path[0]
    main()
