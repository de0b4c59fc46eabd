"""Chromium without a window, driven through chromedriver by the WebDriver protocol. Standard library
only."""

import base64
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

SECONDS = 120  # chromedriver ends by itself after this long, whatever happened to its test
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name of an element's id
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Shift": "\ue008", "Space": " ",
        "Left": "\ue012", "Up": "\ue013", "Right": "\ue014", "Down": "\ue015", "Home": "\ue011",
        "End": "\ue010"}


def find_programs():
    """(chromium, chromedriver), or None where one is missing."""
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    def __init__(self, width=1280, height=860, scheme="light", touch=False):
        program, driver = find_programs()
        self.profile = tempfile.TemporaryDirectory()
        self.driver = subprocess.Popen(
            ["timeout", "-k", "5", str(SECONDS), driver, "--port=0"], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True, preexec_fn=os.setsid)
        self.port = self._read_port()
        self.session = None
        flags = ["--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--no-default-browser-check",
                 "--disable-dev-shm-usage", "--force-prefers-reduced-motion",
                 f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # Chromium's sandbox does not run as root
        if scheme == "dark":
            flags.append("--force-dark-mode")
        wanted = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                  "goog:chromeOptions": {"binary": program, "args": flags}}
        answer = self._post("/session", {"capabilities": {"alwaysMatch": wanted}}, "")
        self.session = answer["sessionId"]
        self.resize(width, height)

    def _read_port(self):
        for line in self.driver.stdout:
            if "successfully on port " in line:
                return int(line.split("on port ")[1].split(".")[0])
        raise RuntimeError("chromedriver did not start")

    def close(self):
        try:
            if self.session:
                self._request("DELETE", "", None)
        finally:
            os.killpg(self.driver.pid, signal.SIGTERM)
            self.driver.wait()
            self.driver.stdout.close()
            self.profile.cleanup()

    # ---- the protocol ----

    def _request(self, method, path, body, base=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        path = (f"/session/{self.session}" if base is None else base) + path
        connection.request(method, path, None if body is None else json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())["value"]
        connection.close()
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(f"{answer['error']}: {answer['message']}")
        return answer

    def _post(self, path, body=None, base=None):
        return self._request("POST", path, body or {}, base)

    # ---- what tests do ----

    def devtools(self, command, **parameters):
        return self._post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width, height, mobile=False):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height,
                      deviceScaleFactor=1, mobile=mobile)

    def prefer(self, scheme):
        self.devtools("Emulation.setEmulatedMedia",
                      features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url):
        self._post("/url", {"url": url})

    def reload(self):
        self._post("/refresh")

    def run(self, script, *arguments):
        """The value of a JavaScript expression; arguments[0] and so on are the rest."""
        return self._post("/execute/sync", {"script": "return " + script, "args": list(arguments)})

    def find(self, selector):
        return self._post("/element", {"using": "css selector", "value": selector})

    def click(self, selector):
        self._post(f"/element/{self.find(selector)[ELEMENT]}/click")

    def type(self, selector, text):
        self._post(f"/element/{self.find(selector)[ELEMENT]}/value", {"text": text})

    def press(self, *names, shift=False):
        """Keys as from a keyboard, to whatever has the focus."""
        actions = []
        for name in names:
            value = KEYS.get(name, name)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        if shift:
            actions = [{"type": "keyDown", "value": KEYS["Shift"]}, *actions,
                       {"type": "keyUp", "value": KEYS["Shift"]}]
        self._post("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def point(self, selector):
        """Moves the pointer over an element."""
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": self.find(selector)}
        self._post("/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move]}]})

    def until(self, condition, what=None, seconds=20, argument=None):
        """Waits until a JavaScript expression is true, and returns its value."""
        end = time.monotonic() + seconds
        while True:
            value = self.run(condition, argument)
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"never true: {what or condition}\n{self.logs()}")
            time.sleep(0.02)

    def text(self, selector):
        return self.run("document.querySelector(arguments[0]).innerText", selector)

    def logs(self):
        """What the console said since the last call: errors, and violations of the page's policy."""
        return [f"{entry['level']}: {entry['message']}"
                for entry in self._post("/se/log", {"type": "browser"})
                if entry["level"] in ("SEVERE", "WARNING")]

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._request("GET", "/screenshot", None)))
