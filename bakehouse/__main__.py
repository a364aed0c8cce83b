"""Run the `bake` command with `python -m bakehouse`."""

from bakehouse.cli.main import main

if __name__ == "__main__":
    main()
