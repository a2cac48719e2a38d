#!/usr/bin/env python3
"""Tasks of a user, done in the real window by real keys, clicks and drops, and how many inputs each takes.

    tests/gui/tasks.py build/release/app/ridgepoint [FOLDER] [TASK...]

An input is a chord of keys, a word that is typed, a click, or a drop. Needs Xvfb, xdotool, xclip, import (ImageMagick)
and Xlib (python3-xlib) for drops. A picture of each task's end lies in FOLDER, to be looked at. A task passes after at
most 6 inputs where what it asks for is what the program says: the scenario and the runs that it keeps, the files that it
writes, and the figures that it copies, compared with the command line where that says the same. Keys that only copy
figures for a check are not counted, nor runs that a task begins with. Ends with 1 where one does not pass.
"""
import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

WIDTH, HEIGHT, MOST_INPUTS = 1600, 1000, 6
STEPS_OF_A_RUN = 100
DWELL = "0.4"  # seconds
HUGGING_FACE_CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1536,
                       "num_hidden_layers": 13, "num_attention_heads": 12, "num_key_value_heads": 4,
                       "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 4096,
                       "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu"}


@contextlib.contextmanager
def screen(width, height):
    """One of its own, on a display that nobody has; programs started meanwhile are shown there."""
    read, write = os.pipe()
    # -r: a key that a busy machine holds for long does not repeat.
    server = subprocess.Popen(["Xvfb", "-r", "-displayfd", str(write), "-screen", "0", f"{width}x{height}x24"], pass_fds=[write],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(write)
    with os.fdopen(read) as number:  # written once the display can be used
        os.environ["DISPLAY"] = ":" + number.readline().strip()
    try:
        yield
    finally:
        server.terminate()
        server.wait()


class Window:
    """The program in a home of its own; what it writes by itself lies in `folder`. Calibrations and models are those of
    `cache`, as of a program that has been used before."""

    def __init__(self, program, cache):
        self.program = program
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ridgepoint_tasks_"))
        self.inputs = 0
        self.environment = dict(os.environ, XDG_CONFIG_HOME=str(self.folder / "config"),
                                XDG_CACHE_HOME=str(cache), XDG_DATA_HOME=str(self.folder / "data"))
        self.process = subprocess.Popen([program], cwd=self.folder, env=self.environment,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait(lambda: (self.folder / "config/ridgepoint/desktop.json").exists(), 60)
        self.settle(5)  # its pictures move for as long as it stands there
        self.do("key", "--delay", "120", "Escape")  # the welcome, of the first start only
        self.inputs = 0

    def do(self, *words):
        subprocess.run(["xdotool", *words], env=self.environment, check=True)
        self.inputs += 1
        self.settle()

    def settle(self, seconds=30):
        """Until the window has had nothing to do for a while, also on a machine that has much else to do: it draws and
        predicts only where there is a reason to."""
        def spent():
            fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])  # clock ticks
        end = time.time() + seconds
        quiet = 0
        time.sleep(0.4)
        while quiet < 4 and time.time() < end:
            before = spent()
            time.sleep(0.4)
            quiet = quiet + 1 if spent() - before <= 1 else 0

    def key(self, chord):
        """Held for longer than a frame takes on a busy machine: one that sees press and release at once sees no chord."""
        keys = chord.split("+")
        held = [word for key in keys for word in ("keydown", key, "sleep", DWELL)]
        self.do(*held, *[word for key in reversed(keys) for word in ("keyup", key)])

    def words(self, text):
        self.do("type", "--delay", "60", "--", text)

    def click(self, x, y):
        self.do("mousemove", str(x), str(y), "sleep", "0.4", "click", "1")

    def command(self, text):
        self.key("ctrl+k")
        self.words(text)
        self.key("Return")

    def uncounted(self, act):
        before = self.inputs
        act()
        self.inputs = before

    def copied(self, panel=None):
        """The figures of a panel as the program copies them; of the one that was used last, or by name."""
        def copy():
            if panel:
                self.command("panel " + panel)
            self.key("ctrl+shift+m")
        self.uncounted(copy)
        for _ in range(5):
            read = subprocess.run(["xclip", "-selection", "clipboard", "-t", "UTF8_STRING", "-o"], env=self.environment, text=True,
                                  capture_output=True, timeout=30)
            if read.returncode == 0:
                return read.stdout
            time.sleep(2)
        raise RuntimeError("nothing was copied: " + read.stderr.strip())

    def scenario(self):
        kept = json.loads((self.folder / "config/ridgepoint/desktop.json").read_text())
        return kept["tabs"][kept.get("tab", 0)]

    def runs(self):
        """Those that the program keeps, oldest first."""
        return [json.loads(file.read_text())
                for file in sorted((self.folder / "config/ridgepoint/runs").glob("*.json"))]

    def start_and_wait(self, runs):
        self.key("F5")
        return self.wait_for_runs(runs)

    def wait_for_runs(self, count, seconds=900):
        self.wait(lambda: len(list((self.folder / "config/ridgepoint/runs").glob("*.json"))) >= count, seconds)
        time.sleep(2)
        return len(self.runs()) >= count

    def predict(self, *flags):
        text = subprocess.run([self.program, "predict", *flags, "--format", "json"], env=self.environment, check=True,
                              text=True, capture_output=True).stdout
        return json.loads(text)

    @staticmethod
    def wait(until, seconds):
        end = time.time() + seconds
        while not until() and time.time() < end:
            time.sleep(0.2)

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def tables_of(markdown):
    """Rows of all tables of a Markdown text, each a list of cells."""
    return [[cell.strip() for cell in line.strip().strip("|").split("|")]
            for line in markdown.splitlines() if line.startswith("|") and not set(line) <= set("|-: ")]


def row_of(rows, first):
    return next((row for row in rows if row[0] == first), None)


UNITS = {"": 1, "%": 0.01, "s": 1, "ms": 1e-3, "us": 1e-6, "\u00b5s": 1e-6, "min": 60, "h": 3600, "B": 1, "KiB": 2**10,
         "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


def number_of(text):
    """"1.36 GiB", "2,931 tokens/s", "989 TFLOP/s": in base units."""
    match = re.match(r"\s*([+\-\u2212]?[\d,.]+)\s*(\S*)", text)
    value, unit = float(match[1].replace(",", "").replace("\u2212", "-")), match[2]
    if unit in UNITS:
        return value * UNITS[unit]
    return value * UNITS.get(unit[:1], 1) if re.match(r"[kMGTPE](FLOP|B|tokens)", unit) else value


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


def close_to(a, b, share=0.006):
    return math.isclose(a, b, rel_tol=share)


def smallest_change(window):
    """a: 70B on 64 H100, the smallest change that makes it fit"""
    window.command("--model llama-3.1-70b --dp 64 --recompute full")
    if not (field(window, "strategy", "data_parallel", 64) and field(window, "model", "num_hidden_layers", 80)):
        return False
    rows = tables_of(window.copied("memory"))
    fixes = rows[next(i for i, row in enumerate(rows) if row[0] == "change") + 1:]
    before = json.dumps(window.scenario()["scenario"])
    window.click(*FIRST_FIX)
    window.wait(lambda: json.dumps(window.scenario()["scenario"]) != before, 8)
    now = window.folder / "now.json"
    now.write_text(json.dumps(window.scenario()["scenario"]))
    report = window.predict("--scenario", str(now))
    peak = sum(line["bytes"] for line in report["report"]["memory"])
    capacity = window.scenario()["scenario"]["hardware"]["memory_gib"] * 2**30
    return peak <= capacity and close_to(peak, number_of(fixes[0][1]))


def cost_of_recompute(window):
    """b: what full recompute costs and what it brings"""
    row = row_of(tables_of(window.copied("configure")), "full recompute")
    now, full = [window.predict("--scenario", "train-llama-3.1-8b-8-h100", "--recompute", mode)
                 for mode in (window.scenario()["scenario"]["strategy"].get("recompute", "none"), "full")]
    saved = [sum(line["bytes"] for line in report["report"]["memory"]) for report in (now, full)]
    slower = now["report"]["step_seconds"] / full["report"]["step_seconds"] - 1
    print(f"   saves {row[2]}, speed {row[4]}; the command line: {saved[0] - saved[1]} B, {slower:.1%}")
    return close_to(number_of(row[2]), saved[0] - saved[1]) and abs(number_of(row[4]) - slower) < 0.006


def train_here(window):
    """c: train a tiny model here, and where the prediction was off"""
    window.command("train-tiny-llama-here")
    if not window.start_and_wait(1):
        return False
    window.click(*COMPARED_TAB)
    rows = tables_of(window.copied())
    header, rows = rows[0], rows[1:]
    predicted, measured = header.index("predicted"), header.index("measured")
    both = [row for row in rows if row[predicted] and row[measured]]
    worst = max(both, key=lambda row: abs(number_of(row[predicted]) - number_of(row[measured])))
    print(f"   {len(both)} operations have both; farthest off: {worst[0]}, {worst[predicted]} and {worst[measured]}")
    live = tables_of(window.copied("live run"))
    begin = live.index(["curve", "step", "loss"]) + 1
    losses = [number_of(row[2]) for row in live[begin:begin + STEPS_OF_A_RUN]]
    return len(both) > 20 and int(live[begin + STEPS_OF_A_RUN - 1][1]) == STEPS_OF_A_RUN and losses[-1] < losses[0]


def with_and_without_cache(window):
    """d: generate with and without a KV cache"""
    window.command("--model smollm2-135m-instruct --dp 1 --zero 0 --hardware this-machine "
                   "--workload laptop-generate")
    if not window.start_and_wait(1):
        return False
    window.click(*KV_CACHE)
    if not field(window, "workload", "kv_cache", False):
        return False
    if not window.start_and_wait(2):
        return False
    runs = sorted(window.runs(), key=lambda run: run["source"]["scenario"]["workload"].get("kv_cache", True))
    def rate(run):
        seconds = [token["seconds"] for token in run["tokens"][1:]]
        return len(seconds) / sum(seconds)
    without, cached = map(rate, runs)
    print(f"   {cached:.1f} tokens/s with, {without:.1f} without: " +
          "".join(token["text"] for token in runs[1]["tokens"])[:60].replace("\n", " "))
    return cached > without and all(token["text"] for token in runs[1]["tokens"][:3])


def cluster_of_16384(window):
    """e: 405B on 16,384 GPUs"""
    window.command("train-llama-3.1-405b")
    return field(window, "strategy", "pipeline_parallel", 16)


def meaning_of_a_number(window):
    """f: what a number means: MFU, with the numbers that it is made of"""
    window.click(*MFU_TILE)
    rows = tables_of(window.copied("explain"))
    line = row_of(rows, "with its numbers")[1]
    print("   " + line)
    left, right = line.split("=")
    # FLOPs a token x tokens/s / (devices x peak)
    left = re.sub(r"(?<=\d),(?=\d)", "", left)
    left = re.sub(r"([\d.]+)\s*([kMGTPE]?)(?:FLOP/s|FLOP|tokens/s|B/s|B)?", lambda m: f"({m[1]}*{UNITS[m[2]]})", left)
    left = re.sub(r"[^\d.*/+()eE-]", "", left.replace("\u00d7", "*").replace("x", "*"))
    return close_to(eval(left, {"__builtins__": {}}), number_of(right), 0.01)


def figure_of_memory(window):
    """g: a memory figure for a slide"""
    window.command("panel memory")
    window.key("ctrl+e")
    return wrote(window, "memory.svg", "<svg", "activations")


def config_opened(window):
    """h: a Hugging Face config.json opened"""
    file = window.folder / "config.json"
    file.write_text(json.dumps(HUGGING_FACE_CONFIG))
    window.command(f"open {file.name}")  # from where the program was started
    return field(window, "model", "hidden_size", 1536) and field(window, "model", "num_hidden_layers", 13)


def compare_two(window):
    """i: the scenario beside itself with full recompute"""
    window.key("p")
    window.command("recompute full")
    window.click(*COMPARE_TAB)
    rows = tables_of(window.copied())
    return field(window, "strategy", "recompute", "full") and any("against pin A" in cell for cell in rows[0])


def memory_of_lengths(window):
    """j: memory of 8B against sequence length for three ways to recompute, as SVG"""
    window.click(*SWEEP_TAB)
    time.sleep(1)
    window.click(*ONE_CURVE)
    window.click(*FOR_EACH_RECOMPUTE)
    time.sleep(2)
    window.key("ctrl+e")
    return wrote(window, "sweep.svg", "recompute full", "recompute selective", "recompute none")


def compare_runs(window):
    """k: two runs of today compared"""
    def run_twice():
        window.command("train-tiny-llama-here")
        for count in (1, 2):
            window.key("F5")
            window.wait_for_runs(count)
    window.uncounted(run_twice)
    window.click(*COMPARE_TAB)
    window.click(*FIRST_RUN_PIN)
    window.click(*SECOND_RUN_PIN)
    rows = tables_of(window.copied())
    kept = window.scenario()
    step = row_of(rows, "step")
    print("   " + "; ".join(f"{name} {value}" for name, value in zip(rows[0], step)))
    measured = [pin for pin in kept["pins"] if pin.get("measured") or pin.get("report")]
    return len(measured) == 2 and sum("against pin A" in cell for cell in rows[0]) == 2


def drop(window, file, x, y):
    """A file from another program, by the protocol of X (XDND 5)."""
    from Xlib import X, display, protocol
    server = display.Display()
    atom = server.intern_atom
    root = server.screen().root
    source = root.create_window(0, 0, 1, 1, 0, X.CopyFromParent)
    source.set_selection_owner(atom("XdndSelection"), X.CurrentTime)
    aware = atom("XdndAware")
    target, todo = None, [root]
    while todo:
        one = todo.pop()
        todo += one.query_tree().children
        if one.get_full_property(aware, X.AnyPropertyType):
            target = one

    def say(name, *data):
        data = [source.id, *data] + [0] * (4 - len(data))
        target.send_event(protocol.event.ClientMessage(window=target, client_type=atom(name), data=(32, data)))
        server.flush()

    say("XdndEnter", 5 << 24, atom("text/uri-list"))
    say("XdndPosition", 0, x << 16 | y, X.CurrentTime, atom("XdndActionCopy"))
    time.sleep(0.5)
    say("XdndDrop", 0, X.CurrentTime)
    end = time.time() + 10
    while time.time() < end:
        if not server.pending_events():
            time.sleep(0.05)
            continue
        event = server.next_event()
        if event.type == X.SelectionRequest:
            event.requestor.change_property(event.property, event.target, 8, f"file://{file}\r\n".encode())
            event.requestor.send_event(protocol.event.SelectionNotify(
                time=event.time, requestor=event.requestor, selection=event.selection, target=event.target,
                property=event.property))
            server.flush()
        elif event.type == X.ClientMessage and event.client_type == atom("XdndFinished"):
            break
    server.close()
    window.inputs += 1


def config_dropped(window):
    """l: a config.json dropped on the window"""
    file = window.folder / "config.json"
    file.write_text(json.dumps(HUGGING_FACE_CONFIG))
    drop(window, file, WIDTH // 2, HEIGHT // 2)
    return field(window, "model", "hidden_size", 1536) and field(window, "model", "num_key_value_heads", 4)


def where_from(window):
    """m: where a constant came from"""
    window.click(*FORMULAS)
    rows = tables_of(window.copied())
    sources = [cell for row in rows for cell in row if "http" in cell or "datasheet" in cell]
    return len(sources) > 5


def page_of_405b(window):
    """n: the HTML report of 405B"""
    window.command("train-llama-3.1-405b")
    time.sleep(1)
    window.command("html page")
    return wrote(window, "report.html", "<html", "llama-3.1-405b")


# Where things stand in a window of this size.
FIRST_FIX, COMPARED_TAB, KV_CACHE, MFU_TILE = (400, 485), (940, 622), (164, 469), (906, 90)
COMPARE_TAB, FIRST_RUN_PIN, SECOND_RUN_PIN = (1120, 622), (859, 716), (859, 738)
SWEEP_TAB, ONE_CURVE, FOR_EACH_RECOMPUTE, FORMULAS = (576, 258), (455, 293), (517, 616), (1415, 415)

TASKS = {"a": smallest_change, "b": cost_of_recompute, "c": train_here, "d": with_and_without_cache,
         "e": cluster_of_16384, "f": meaning_of_a_number, "g": figure_of_memory, "h": config_opened, "i": compare_two,
         "j": memory_of_lengths, "k": compare_runs, "l": config_dropped, "m": where_from, "n": page_of_405b}
NEED_CALIBRATION = "cdk"


def cache():
    """Where programs that were used before have kept calibrations and models."""
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))


def calibrate_for(program, names):
    """What a program that was used before has: this machine's calibration, where a task runs something."""
    if any(name in NEED_CALIBRATION for name in names):
        subprocess.run([program, "predict", "--scenario", "train-tiny-llama-here"], check=True,
                       stdout=subprocess.DEVNULL)


def main():
    program, folder = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "tasks")
    folder.mkdir(parents=True, exist_ok=True)
    names = sys.argv[3:] or list(TASKS)
    calibrate_for(program, names)
    failed = False
    with screen(WIDTH, HEIGHT):
        for name in names:
            window = Window(program, cache())
            try:
                try:
                    done = TASKS[name](window)
                except (RuntimeError, StopIteration, TypeError, ValueError, IndexError, KeyError) as error:
                    done = False
                    print(f"   {type(error).__name__}: {error}")
                inputs = window.inputs
                time.sleep(1)
                subprocess.run(["import", "-window", "root", str(folder / f"{name}.png")],
                               env=window.environment, check=True)
            finally:
                window.close()
            passed = done and inputs <= MOST_INPUTS
            failed = failed or not passed
            print(f"{TASKS[name].__doc__}: {inputs} inputs, {'done' if done else 'NOT DONE'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
