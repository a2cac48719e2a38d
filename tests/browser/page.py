"""A page in headless Chromium, driven by the events that a hand makes: DevTools' protocol over a WebSocket, with Python's own
library alone (RFC 6455; https://chromedevtools.github.io/devtools-protocol/)."""

import base64
import functools
import http.server
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time


class Failure(Exception):
    pass


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise Failure(f"{what}: not within {seconds} s")


class Socket:
    """Text messages of one WebSocket."""

    def __init__(self, port, path):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.stream = self.socket.makefile("rb")
        if b" 101 " not in self.stream.readline():
            raise Failure("Chromium refused the connection")
        while self.stream.readline().strip():
            pass

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        length = struct.pack("!BB", 0x81, 0x80 | len(data)) if len(data) < 126 else (
            struct.pack("!BBH", 0x81, 0xFE, len(data)) if len(data) < 65536 else struct.pack("!BBQ", 0x81, 0xFF, len(data)))
        repeated = (mask * (len(data) // 4 + 1))[:len(data)]
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(data), "big")
        self.socket.sendall(length + mask + masked)

    def receive(self):
        text = b""
        while True:
            first, second = self.stream.read(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack("!H", self.stream.read(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self.stream.read(8))
            data = self.stream.read(length)
            if first & 0x0F in (0, 1):
                text += data
                if first & 0x80:
                    return text.decode()


class Server:
    """The folder, as any file server would serve it."""

    def __init__(self, folder):
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/index.html"

    def close(self):
        self.server.shutdown()


# How a key is told from its name: (code, key code).
NAMED = {"Enter": ("Enter", 13), "Escape": ("Escape", 27), "ArrowRight": ("ArrowRight", 39), "ArrowLeft": ("ArrowLeft", 37),
         "ArrowDown": ("ArrowDown", 40), "Tab": ("Tab", 9), "F11": ("F11", 122), "Backspace": ("Backspace", 8),
         "Control": ("ControlLeft", 17), "Shift": ("ShiftLeft", 16)}


class Page:
    def __init__(self, chromium="chromium", width=1280, height=800):
        self.profile = tempfile.mkdtemp()
        self.process = subprocess.Popen(
            [chromium, "--headless=new", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
             "--ignore-gpu-blocklist", "--disable-background-networking", "--disable-component-update", "--no-first-run",
             "--disable-dev-shm-usage", f"--window-size={width},{height}", "--force-device-scale-factor=1",
             "--remote-debugging-port=0", f"--user-data-dir={self.profile}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port_file = pathlib.Path(self.profile) / "DevToolsActivePort"
        port = wait_for("Chromium starts", lambda: port_file.exists() and port_file.read_text().split())[0]
        import urllib.request
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
            target = next(one for one in json.load(answer) if one["type"] == "page")
        self.socket = Socket(int(port), target["webSocketDebuggerUrl"].split(port, 1)[1])
        self.number = 0
        self.console = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.number:
                if "error" in message:
                    raise Failure(f"{method}: {message['error']['message']}")
                return message["result"]
            self.heard(message)

    def heard(self, message):
        if message.get("method") == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(one.get("value", one.get("description"))) for one in message["params"]["args"]))
        elif message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.console.append("exception: " + details.get("exception", {}).get("description", details["text"]))
        elif message.get("method") == "Log.entryAdded":
            self.console.append(message["params"]["entry"]["text"])

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise Failure(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def open(self, address):
        self.call("Page.navigate", url=address)

    def picture(self, file):
        pathlib.Path(file).write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def key(self, name, modifiers=0, held=0.05):
        """Pressed and released; modifiers: 2 is Ctrl, 8 is Shift."""
        code, number = NAMED.get(name, ("Key" + name.upper(), ord(name.upper()) if len(name) == 1 else 0))
        event = {"key": name, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="rawKeyDown" if len(name) > 1 or modifiers & 2 else "keyDown", **event)
        time.sleep(held)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)
        time.sleep(held)

    def chord(self, name):
        """With Ctrl, held as a hand holds it."""
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", key="Control", code="ControlLeft", windowsVirtualKeyCode=17,
                  modifiers=2)
        time.sleep(0.15)
        self.key(name, 2, held=0.15)
        self.call("Input.dispatchKeyEvent", type="keyUp", key="Control", code="ControlLeft", windowsVirtualKeyCode=17)
        time.sleep(0.3)

    def type(self, words):
        for letter in words:
            code = {" ": "Space", "-": "Minus", ".": "Period"}.get(
                letter, ("Digit" if letter.isdigit() else "Key") + letter.upper())
            event = {"key": letter, "code": code}
            self.call("Input.dispatchKeyEvent", type="keyDown", text=letter, **event)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)
            time.sleep(0.03)

    def click(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        time.sleep(0.2)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            time.sleep(0.1)

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
