"""The `bake` command: tasks and presentation. Start at `main`."""

import sys

if sys.platform == "win32":
    # Other modules need a system of Unix when they are imported.
    sys.exit("error: Bakehouse does not run on Windows itself\n\nhint: install and run it in WSL2")
