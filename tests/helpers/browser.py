"""A headless Chromium, driven through ChromeDriver with nothing but the standard library."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
]


class Browser:
    """One window; `console` and `requests` tell what happened in it."""

    def __init__(self, address: str, session: str) -> None:
        self._base = f"{address}/session/{session}"

    def open(self, url: str) -> None:
        _call("POST", f"{self._base}/url", {"url": url})

    def run(self, script: str, *arguments):
        return _call("POST", f"{self._base}/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command: str, **parameters):
        return _call("POST", f"{self._base}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def window(self, width: int, height: int, *, dark: bool = False) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def press(self, *keys: str) -> None:
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                said, number = " " if key == "Space" else key, _CODES[key]
                self.devtools("Input.dispatchKeyEvent", type=kind, key=said, code=key, windowsVirtualKeyCode=number)

    def screenshot(self, *, whole: bool = False) -> bytes:
        data = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(data["data"])

    def console(self) -> list[str]:
        """Errors and warnings since the last call."""
        log = _call("POST", f"{self._base}/se/log", {"type": "browser"})
        return [entry["message"] for entry in log]

    def requests(self) -> list[str]:
        """Addresses pages asked for since the last call; data: is not a request, and the start page does not count."""
        log = _call("POST", f"{self._base}/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in log]
        sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("data:", "chrome"))]


_CODES = {"Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35, "Space": 32}


@contextlib.contextmanager
def chromium():
    """A browser that is gone when the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with tempfile.TemporaryDirectory() as profile:
            _wait(address)
            options = {
                "binary": CHROMIUM,
                "args": [*_FLAGS, f"--user-data-dir={profile}", "about:blank"],
                "perfLoggingPrefs": {"enableNetwork": True},
            }
            wanted = {
                "browserName": "chrome",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }
            session = _call("POST", f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
            try:
                yield Browser(address, session)
            finally:
                _call("DELETE", f"{address}/session/{session}")
    finally:
        driver.terminate()
        driver.wait(30)


def _wait(address: str) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError):
            if _call("GET", f"{address}/status")["ready"]:
                return
        time.sleep(0.1)
    raise TimeoutError("chromedriver did not start")


def _call(method: str, url: str, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(error.read().decode()) from error
