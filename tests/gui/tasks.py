#!/usr/bin/env python3
"""Tasks of a user, done in the real window by real keys and clicks, and how many inputs each takes.

    tests/gui/tasks.py build/release/app/ridgepoint [FOLDER] [TASK...]

An input is a chord of keys, a word that is typed, or a click. Needs Xvfb, xdotool and import (ImageMagick). A picture of
each task's end lies in FOLDER, to be looked at. A task passes where what it asks for is in the scenario that the program
keeps, or in the file that it wrote, after at most 6 inputs; of some the picture alone tells. Ends with 1 where one does
not pass.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

DISPLAY, WIDTH, HEIGHT, MOST_INPUTS = ":78", 1600, 1000, 6
# What only the picture tells.
LOOK = "see its picture"


class Window:
    """The program in a home of its own; what it writes by itself lies in `folder`."""

    def __init__(self, program):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ridgepoint_tasks_"))
        self.inputs = 0
        environment = dict(os.environ, DISPLAY=DISPLAY, XDG_CONFIG_HOME=str(self.folder / "config"),
                           XDG_CACHE_HOME=str(self.folder / "cache"), XDG_DATA_HOME=str(self.folder / "data"))
        self.process = subprocess.Popen([program], cwd=self.folder, env=environment,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait(lambda: (self.folder / "config/ridgepoint/desktop.json").exists(), 30)
        time.sleep(1)
        self.do("key", "--delay", "120", "Escape")  # the welcome, of the first start only
        self.inputs = 0

    def do(self, *words):
        subprocess.run(["xdotool", *words], env=dict(os.environ, DISPLAY=DISPLAY), check=True)
        self.inputs += 1
        time.sleep(0.8)

    def key(self, chord):
        self.do("key", "--delay", "120", chord)

    def words(self, text):
        self.do("type", "--delay", "60", text)

    def click(self, x, y):
        self.do("mousemove", str(x), str(y), "sleep", "0.3", "click", "1")

    def command(self, text):
        self.key("ctrl+k")
        self.words(text)
        self.key("Return")

    def scenario(self):
        kept = json.loads((self.folder / "config/ridgepoint/desktop.json").read_text())
        return kept["tabs"][kept.get("tab", 0)]

    @staticmethod
    def wait(until, seconds):
        end = time.time() + seconds
        while not until() and time.time() < end:
            time.sleep(0.2)

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def field(window, part, name, value):
    """Whether the scenario that is kept comes to have this value."""
    def has():
        try:
            return window.scenario()["scenario"][part].get(name) == value
        except (KeyError, ValueError, OSError):
            return False
    window.wait(has, 8)
    return has()


def wrote(window, name, *contains):
    file = window.folder / name
    window.wait(file.exists, 30)
    time.sleep(0.5)
    text = file.read_text(errors="replace") if file.exists() else ""
    return all(words in text for words in contains) and bool(text)


def cost_of_recompute(window):
    """b: what full recompute costs and brings, without any input"""
    return LOOK


def cluster_of_16384(window):
    """e: 405B on 16,384 GPUs"""
    window.command("train-llama-3.1-405b")
    return field(window, "strategy", "pipeline_parallel", 16)


def figure_of_memory(window):
    """g: a memory figure for a slide"""
    window.command("panel memory")
    window.key("ctrl+e")
    return wrote(window, "memory.svg", "<svg", "activations")


def compare_two(window):
    """i: the scenario beside itself with full recompute"""
    window.key("p")
    window.command("recompute full")
    window.click(1120, 622)  # Compare
    return field(window, "strategy", "recompute", "full")


def memory_of_lengths(window):
    """j: memory of 8B against sequence length for three ways to recompute, as SVG"""
    window.click(576, 258)  # Sweep
    time.sleep(1)
    window.click(455, 293)  # one curve
    window.click(517, 616)  # for each recompute
    time.sleep(2)
    window.key("ctrl+e")
    return wrote(window, "sweep.svg", "recompute full", "recompute selective", "recompute none")


def where_from(window):
    """m: where a constant came from"""
    window.click(1415, 415)  # Formulas and constants, in Explain
    return LOOK


def page_of_405b(window):
    """n: the HTML report of 405B"""
    window.command("train-llama-3.1-405b")
    time.sleep(1)
    window.command("html page")
    return wrote(window, "report.html", "<html", "llama-3.1-405b")


TASKS = {"b": cost_of_recompute, "e": cluster_of_16384, "g": figure_of_memory, "i": compare_two,
         "j": memory_of_lengths, "m": where_from, "n": page_of_405b}


def main():
    program, folder = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "tasks")
    folder.mkdir(parents=True, exist_ok=True)
    screen = subprocess.Popen(["Xvfb", DISPLAY, "-screen", "0", f"{WIDTH}x{HEIGHT}x24"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(2)
    failed = False
    try:
        for name in sys.argv[3:] or TASKS:
            window = Window(program)
            try:
                done = TASKS[name](window)
                inputs = window.inputs
                time.sleep(1)
                subprocess.run(["import", "-window", "root", str(folder / f"{name}.png")],
                               env=dict(os.environ, DISPLAY=DISPLAY), check=True)
            finally:
                window.close()
            passed = done and inputs <= MOST_INPUTS
            failed = failed or not passed
            print(f"{TASKS[name].__doc__}: {inputs} inputs, {done if done == LOOK else 'done' if done else 'NOT DONE'}", flush=True)
    finally:
        screen.terminate()
        screen.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
