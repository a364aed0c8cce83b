"""The build backend of a stub, which needs only the standard library."""

import zipfile

NAME, VERSION = "transformer_engine_torch", "@version@"
STEM = f"{NAME.replace('-', '_').lower()}-{VERSION}"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    file = f"{STEM}-py3-none-any.whl"
    info = f"{STEM}.dist-info"
    module = NAME.replace("-", "_").replace(".", "_").lower()
    files = {
        f"{module}/__init__.py": f'"""A stub."""\n\n__version__ = "{VERSION}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\nSummary: x\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: bakehouse\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(f"{wheel_directory}/{file}", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), text)
    return file
