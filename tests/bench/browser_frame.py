#!/usr/bin/env python3
"""Work of a frame in the browser edition beside the desktop's: the first scenario at 1280x800 while the mouse goes over it.

    tests/bench/browser_frame.py [build/release] [build/browser/page]

Milliseconds in which a frame's draw lists are built, the median of five passes each: in headless Chromium by the page's clock,
natively by the processor's, so on a busy machine the page looks slower than it is: its tenth percentile is printed, too. Both at
the pace of a screen: frames that follow each other at once find their data in the caches, and take half as long natively. Needs
Chromium, and scripts/browser's folder.
"""
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "browser"))
from edition import Edition
from page import Page, Server

PASSES = 5  # as gui_frame's part "mouse"
POSITIONS = [(x, 500) for x in range(300, 900, 10)]


def in_page(folder):
    server, page = Server(folder), Page(shutil.which("chromium") or shutil.which("google-chrome"), 1280, 800)
    try:
        edition = Edition(page)
        edition.begin(server.address)
        page.key("Escape")  # the welcome
        edition.settle()
        built, handed_over = [], []
        for _ in range(PASSES):
            for all_of_it, part in zip((built, handed_over), edition.frames(POSITIONS)):
                all_of_it.extend(part)
    finally:
        page.close()
        server.close()
    return built, handed_over


def natively(build):
    text = subprocess.run([build / "tests" / "bench" / "gui_frame", "mouse"], check=True, text=True, stdout=subprocess.PIPE).stdout
    return float(re.search(r"under the mouse, 60 a second\s+median\s+([\d.]+) ms", text).group(1))


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "release").resolve()
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "build" / "browser" / "page")
    before = natively(build)
    built, handed_over = in_page(folder)
    native = statistics.mean([before, natively(build)])  # the machine's pace changes
    page, tenth = statistics.median(built), statistics.quantiles(built, n=10)[0]
    print(f"in the page {page:.2f} ms (tenth percentile {tenth:.2f}) of {len(built)} frames, and {statistics.median(handed_over):.2f} ms to hand them to WebGL; "
          f"natively {native:.2f} ms; {page / native:.2f} times as long (aim: 2)")


if __name__ == "__main__":
    main()
