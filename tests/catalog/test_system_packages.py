"""Names of distribution packages by package manager."""

from bakehouse.catalog.system_packages import NO_PACKAGES, SystemPackages, manager_of


def test_names_of_one_manager_are_known_or_lacking() -> None:
    packages = SystemPackages(apt=("g++", "vim"), dnf=None)

    assert packages.names("apt") == ("g++", "vim")
    assert packages.names("dnf") == ()
    assert (packages.lacks("apt"), packages.lacks("dnf")) == (False, True)


def test_the_names_for_one_manager_alone() -> None:
    packages = SystemPackages(apt=("g++",), dnf=("gcc-c++",))

    assert packages.of("apt") == SystemPackages(apt=("g++",))
    assert packages.of("dnf") == SystemPackages(dnf=("gcc-c++",))


def test_a_sum_knows_the_names_that_both_sides_know() -> None:
    total = SystemPackages(("vim",), ("vim",)) + SystemPackages(("g++",), None)

    assert total == SystemPackages(("vim", "g++"), None)
    assert total + NO_PACKAGES == total


def test_a_version_of_apt_is_not_a_name_of_dnf() -> None:
    packages = SystemPackages(("vim=9",), ("vim=9", "vim-9"))

    assert packages.invalid("apt") == ()
    assert packages.invalid("dnf") == ("vim=9",)


def test_amazon_linux_uses_dnf() -> None:
    assert manager_of({"amazon-linux": "2023"}) == "dnf"
    assert manager_of({"glibc": "2.36"}) == "apt"
