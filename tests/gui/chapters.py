#!/usr/bin/env python3
"""Plays chapters of lessons in the real window, as a lecturer does: presented, by real keys, from the first step to the last.

    tests/gui/chapters.py build/release/app/ridgepoint FOLDER [CHAPTER...]

Chapters are numbers; all but the missions' where none is given. Pictures of every step as it asks and as it is answered, and of
what stands below the screen, lie in FOLDER, to be looked at. The screen has 1280x720, as projectors have. Needs Xvfb, xdotool and
ImageMagick. Ends with 1 where a step was not reached or a question not answered, as the program keeps it.
"""
import json
import pathlib
import re
import subprocess
import sys

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
            place = re.search(r"^place: (\d+)", text, re.M)
            found.append((int(place[1]) if place else sys.maxsize, file.stem,
                          [len(re.findall(r"^:ask ", step, re.M)) for step in steps]))
    return [(name, steps) for _, name, steps in sorted(found)]


class Class(tasks.Window):
    def kept(self):
        file = self.folder / "config/ridgepoint/lessons.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def seen(self):
        return subprocess.run(["import", "-window", "root", "ppm:-"], env=self.environment, check=True,
                              stdout=subprocess.PIPE).stdout

    def pictures(self, file):
        """What is seen, and then what stands below it, screen by screen: FILE.png, FILE-below1.png ..."""
        now, name, below = self.seen(), file, 0
        while True:
            subprocess.run(["convert", "ppm:-", f"{name}.png"], input=now, check=True)
            self.key("Down")
            before, now = now, self.seen()
            if now == before:
                break
            below += 1
            name = f"{file}-below{below}"
        for _ in range(below):
            self.key("Up")


def play(window, folder, chapter):
    """Whether all of the chapter was seen and answered."""
    lessons = lessons_of(chapter)
    window.command("open lesson " + lessons[0][0])
    window.key("F11")
    for name, steps in lessons:
        for number, questions in enumerate(steps, 1):
            window.pictures(folder / f"{chapter}-{name}-{number}")
            for _ in range(questions):
                window.key("b")
                window.key("Return")
            if questions:
                window.pictures(folder / f"{chapter}-{name}-{number}-answered")
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
    complete = True
    with tasks.screen(WIDTH, HEIGHT):
        for chapter in sys.argv[3:] or "12345678":
            window = Class(program, tasks.cache())
            try:
                complete = play(window, folder, chapter) and complete
            finally:
                window.close()
    sys.exit(not complete)


if __name__ == "__main__":
    main()
