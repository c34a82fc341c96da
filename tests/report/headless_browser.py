"""A headless Chromium, driven through its debugging pipe with nothing but the standard library.

    with Browser() as browser:
        page = browser.open("/tmp/report.html", width=1280, height=900)
        page.run("document.title")
        page.mouse("mouseMoved", 400, 300)
        page.errors  # whatever the console complained about
"""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find():
    """The browser's program, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class BrowserError(Exception):
    pass


class Browser:
    def __init__(self, program=None, patience=60):
        self.program = program or find()
        self.patience = patience
        self.last_id = 0
        self.unread = b""
        self.listeners = []

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self.ours_out = os.pipe()
        self.ours_in, theirs_out = os.pipe()
        command = [
            self.program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
            "--disable-background-networking", "--force-color-profile=srgb",
            f"--user-data-dir={self.profile.name}", "about:blank",
        ]  # fmt: skip
        # The browser reads its commands from descriptor 3 and answers on 4.
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
        except (BrowserError, OSError):
            pass
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.ours_out)
        os.close(self.ours_in)
        self.profile.cleanup()

    def call(self, method, session=None, **parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self._write(json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.patience
        while True:
            answer = self._read(deadline)
            if answer.get("id") != self.last_id:
                for listener in self.listeners:
                    listener(answer)
                continue
            if "error" in answer:
                raise BrowserError(f"{method}: {answer['error']}")
            return answer["result"]

    def _write(self, data):
        while data:
            data = data[os.write(self.ours_out, data) :]

    def _read(self, deadline):
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.ours_in], [], [], deadline - time.monotonic())
            data = os.read(self.ours_in, 1 << 20) if ready else b""
            if not data:
                raise BrowserError("the browser does not answer")
            self.unread += data
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, width=1280, height=900, scheme="light"):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session, path, width, height, scheme)

    def colours(self, png):
        """Which share of a picture's points has which colour: {"#fbfaf7": 0.5, ...}."""
        data = base64.b64encode(pathlib.Path(png).read_bytes()).decode()
        # On a page of its own: those under test may forbid pictures.
        return self.open("about:blank").run(
            f"""(async () => {{
              const image = new Image();
              image.src = 'data:image/png;base64,{data}';
              await image.decode();
              const canvas = new OffscreenCanvas(image.width, image.height);
              const context = canvas.getContext('2d');
              context.drawImage(image, 0, 0);
              const points = context.getImageData(0, 0, image.width, image.height).data;
              const counts = new Map();
              for (let i = 0; i < points.length; i += 4) {{
                const colour = (points[i] << 16) | (points[i + 1] << 8) | points[i + 2];
                counts.set(colour, (counts.get(colour) ?? 0) + 1);
              }}
              return Object.fromEntries([...counts].map(
                ([colour, count]) => ['#' + colour.toString(16).padStart(6, '0'), 4 * count / points.length]));
            }})()"""
        )


class Page:
    def __init__(self, browser, session, path, width, height, scheme):
        self.browser = browser
        self.session = session
        self.errors = []
        browser.listeners.append(self._listen)
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.media(scheme)
        blank = path == "about:blank"
        self.call("Page.navigate", url=path if blank else pathlib.Path(path).resolve().as_uri())
        self.wait_for("document.readyState === 'complete'")

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def _listen(self, message):
        if message.get("sessionId") != self.session:
            return
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            what = details.get("exception", {}).get("description", details["text"])
            self.errors.append(f"exception: {what}")
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.errors.append(f"console: {parameters['args']}")
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"log: {parameters['entry']['text']}")

    def run(self, expression):
        """The value of a JavaScript expression; promises are waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, condition, patience=30):
        deadline = time.monotonic() + patience
        while not self.run(condition):
            if time.monotonic() > deadline:
                raise BrowserError(f"never came true: {condition}")
            time.sleep(0.05)

    def settle(self):
        """Until what was asked for has been drawn."""
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def resize(self, width, height):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def media(self, scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.settle()

    def click(self, x, y):
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def key(self, key, text=None, shift=False):
        event = {"key": key, "modifiers": 8 if shift else 0}
        codes = {"Tab": 9, "Escape": 27, "Home": 36}
        if key in codes:
            event["windowsVirtualKeyCode"] = codes[key]
        if text:
            event["text"] = text
        self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def screenshot(self, path):
        shot = self.call("Page.captureScreenshot", format="png")
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))
