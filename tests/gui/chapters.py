#!/usr/bin/env python3
"""Plays chapters of lessons in the real window, as a lecturer does: presented, by real keys, from the first step to the last.

    tests/gui/chapters.py build/release/app/ridgepoint FOLDER [CHAPTER...]

Chapters are numbers; 1, 2 and 3 where none is given. A picture of every step as it asks and as it is answered lies in FOLDER, to
be looked at. The screen has 1280x720, as projectors have. Needs Xvfb, xdotool and import (ImageMagick). Ends with 1
where a step was not reached or a question not answered, as the program keeps it.
"""
import json
import pathlib
import re
import subprocess
import sys
import time

import tasks

WIDTH, HEIGHT = 1280, 720
LESSONS = pathlib.Path(__file__).parents[2] / "presets" / "lessons"


def lessons_of(chapter):
    """Its lessons by name, as the program orders them: [(name, steps)], a step the number of its questions."""
    found = []
    for file in sorted(LESSONS.glob("*.md")):
        text = file.read_text()
        if re.search(rf"^chapter: {chapter} ", text, re.M):
            steps = re.split(r"^## ", text, flags=re.M)[1:]
            found.append((file.stem, [len(re.findall(r"^:ask ", step, re.M)) for step in steps]))
    return found


class Class(tasks.Window):
    def kept(self):
        file = self.folder / "config/ridgepoint/lessons.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def picture(self, file):
        subprocess.run(["import", "-window", "root", str(file)], env=self.environment, check=True)


def play(window, folder, chapter):
    """Whether all of the chapter was seen and answered."""
    lessons = lessons_of(chapter)
    window.command("open lesson " + lessons[0][0])
    window.key("F11")
    for name, steps in lessons:
        for number, questions in enumerate(steps, 1):
            window.picture(folder / f"{chapter}-{name}-{number}.png")
            for _ in range(questions):
                window.key("b")
                window.key("Return")
            if questions:
                window.picture(folder / f"{chapter}-{name}-{number}-answered.png")
            window.key("Right")
    window.key("Escape")
    kept = window.kept()
    answered = [key for key, answer in kept.get("answers", {}).items()]
    complete = True
    for name, steps in lessons:
        seen = kept.get("steps", {}).get(name, 0)
        of_it = sum(key.startswith(name + "/") for key in answered)
        print(f"{name}: {seen} of {len(steps)} steps seen, {of_it} of {sum(steps)} questions answered", flush=True)
        complete = complete and seen == len(steps) and of_it == sum(steps)
    return complete


def main():
    program, folder = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    screen = subprocess.Popen(["Xvfb", tasks.DISPLAY, "-screen", "0", f"{WIDTH}x{HEIGHT}x24"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(2)
    complete = True
    try:
        for chapter in sys.argv[3:] or ["1", "2", "3"]:
            window = Class(program, folder / "cache")
            try:
                complete = play(window, folder, chapter) and complete
            finally:
                window.close()
    finally:
        screen.terminate()
        screen.wait()
    sys.exit(not complete)


if __name__ == "__main__":
    main()
