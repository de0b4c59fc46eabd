"""What the tests of the page at / share: a server, a browser, and what a user does in it."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))

import browser  # noqa: E402
from server_fixture import MODEL, Server  # noqa: E402

SKIPPED = 77
IDLE = "document.getElementById('stop').hidden && document.querySelector('.message.assistant .facts')"
SMALL = ("--block-size", "16", "--max-model-len", "1024", "--log", "none")


class PageTest(unittest.TestCase):
    """One server for a class, one browser for all: each test begins with an empty browser."""

    flags = ()
    model = MODEL
    num_blocks = 128
    browser = None
    start = "document.getElementById('model').textContent"  # true when the page is ready

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.flags, "--num-kvcache-blocks", str(cls.num_blocks), *SMALL, model=cls.model)
        cls.url = f"http://127.0.0.1:{cls.server.port}/"
        if not PageTest.browser:
            PageTest.browser = browser.Browser()

    @classmethod
    def tearDownClass(cls):
        # A connection that the browser keeps would be waited for.
        cls.browser.open("about:blank")
        fault = cls.server.stop()
        if fault:
            raise AssertionError(fault)

    def setUp(self):
        b = self.browser
        b.resize(1280, 860)
        b.prefer("light")
        b.open(self.url)
        b.run("localStorage.clear() || sessionStorage.clear() || "
              "localStorage.setItem('nanovllm.settings', '{\"temperature\": \"0\"}')")
        b.logs()
        b.open(self.url)
        b.until(self.start)

    def tearDown(self):
        self.assertEqual(self.browser.logs(), [])

    # ---- what a user does ----

    def leave_settings(self):
        """Closes them, and waits until they are: what is typed before goes to the dialog."""
        self.browser.press("Escape")
        self.browser.until("!document.getElementById('settings').open")

    def ask(self, text, press_enter=True):
        self.browser.type("#composer-text", text + (browser.KEYS["Enter"] if press_enter else ""))

    def answer(self, text, number=1):
        """Asks, waits for the end, and returns the answer's text."""
        self.ask(text)
        self.browser.until(f"{IDLE} && document.querySelectorAll('.message.assistant').length === {number}")
        return self.browser.text(".message.assistant:last-child .md")

    def open_engine(self):
        self.browser.click("#engine-button")
        self.browser.until("room.cells.length === 128")

    def pause(self):
        self.browser.click("#pause")
        self.browser.until("!document.getElementById('step').disabled")

    def count(self, selector):
        return self.browser.run("document.querySelectorAll(arguments[0]).length", selector)

    def check_widths(self, what):
        wide = self.browser.run(
            "Array.from(document.querySelectorAll('html, .scroll, .chats, .engine, dialog[open]'))"
            ".filter(e => e.scrollWidth > e.clientWidth || e.getBoundingClientRect().right > innerWidth)"
            ".map(e => e.className || e.tagName)")
        self.assertEqual(wide, [], what)


def main():
    if not browser.find_programs():
        print("note: there is no chromium with chromedriver: the page is not tested")
        sys.exit(SKIPPED)
    try:
        unittest.main(argv=sys.argv, verbosity=1)
    finally:
        if PageTest.browser:
            PageTest.browser.close()

