"""The browser edition as a hand uses it, in a page (page.py): begun, given commands and waited for; and what it keeps."""

import csv
import json
import time

from page import wait_for

SETTINGS = "/home/web_user/.config/ridgepoint"


class Edition:
    def __init__(self, page):
        self.page = page

    def begin(self, address):
        """Seconds to the first picture."""
        started = time.monotonic()
        self.page.open(address)
        wait_for("the window is drawn", lambda: self.page.value("window.Module && Module.drawn > 2"))
        return time.monotonic() - started

    def command(self, words):
        self.page.chord("k")
        self.page.type(words)
        time.sleep(0.5)
        self.page.key("Enter")

    def settle(self):
        """Until nothing is drawn any more."""
        before = -1
        while (now := self.page.value("Module.drawn")) != before:
            before = now
            time.sleep(0.8)

    def text(self, path):
        """The text of a file of the page's, empty where it is not there."""
        return self.page.value(f"FS.analyzePath('{path}').exists ? FS.readFile('{path}', {{encoding: 'utf8'}}) : ''")

    def kept(self, name):
        """What the program has written, or nothing yet."""
        text = self.text(f"{SETTINGS}/{name}")
        return json.loads(text) if text else {}

    def shown_in(self, panel):
        """The figures of a panel as its export hands them over: {title: rows of text by their columns' names}."""
        self.command(f"maximise {panel}")
        self.command("panel as csv")
        text = wait_for(f"what {panel} shows is exported", lambda: self.text(f"/tmp/{panel}.csv"))
        figures = [figure.strip().splitlines() for figure in text.split("# ")[1:]]
        return {lines[0]: list(csv.DictReader(lines[1:])) for lines in figures}

    def runs(self):
        """Those that it keeps, oldest first."""
        folder = f"{SETTINGS}/runs"
        names = self.page.value(f"FS.analyzePath('{folder}').exists ? FS.readdir('{folder}') : []")
        return [self.kept(f"runs/{name}") for name in sorted(names) if name.endswith(".json")]

    def frames(self, positions):
        """Milliseconds of building and of handing over, of each frame that is drawn while the mouse goes there."""
        self.page.value("Module.frames.length = 0")
        for x, y in positions:
            self.page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
            time.sleep(0.05)
        return [[frame[part] for frame in self.page.value("Module.frames")] for part in ("built", "handedOver")]
