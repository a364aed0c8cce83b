"""A headless Chromium, which tests drive through its debugging pipe."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SECONDS = 30.0
_ENABLED = ("Page", "Runtime", "Log", "Network", "Accessibility")


class Browser:
    """One page in one browser. Lines and columns of events are not needed, so they are kept as they are."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in _ENABLED:
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the browser, and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while (reply := self._read()).get("id") != self._number:
            self.events.append(reply)
        assert "error" not in reply, reply
        return reply["result"]

    def open(self, path: Path, fragment: str = "", *, width: int = 1280, height: int = 900) -> None:
        """Open a file and wait until it is loaded."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=f"{path.as_uri()}{fragment}")
        self.wait("document.readyState === 'complete' && performance.timing.loadEventEnd > 0")

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + _SECONDS
        while not self.evaluate(expression):
            assert time.monotonic() < end, expression
            time.sleep(0.02)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **typed)

    def screenshot(self, path: Path) -> None:
        """Write what the window shows as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._receive, 1 << 20)
            assert data, "the browser ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


def find_program() -> str | None:
    """Return the path of Chromium; None if this machine has none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextlib.contextmanager
def open_browser(program: str, profile: Path) -> Iterator[Browser]:
    """Yield a browser that ends with the context."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    options = [
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--remote-debugging-pipe", f"--user-data-dir={profile}", "--hide-scrollbars"),
    ]
    # Chromium reads commands from descriptor 3 and writes to 4
    command = ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{from_write}', "bash", program, *options]
    with (profile.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            command, pass_fds=(to_read, from_write), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    os.close(to_read)
    os.close(from_write)
    try:
        yield Browser(to_write, from_read)
    finally:
        os.close(to_write)
        os.close(from_read)
        process.terminate()
        process.wait(_SECONDS)
