"""Tools of maintainers, which exist only in a checkout of Bakehouse. Start at `selftest`."""
