#!/usr/bin/env python3
"""Every case of a Catch2 program in a process of its own, several at a time: a case that hangs, or after which the GPU
answers no more, fails alone.

    python3 tests/gpu/cases.py --jobs 12 --seconds 60 --out cases.txt build/gpu/tests/test_gpu [NAME_PATTERN]

COMMAND before the program, as compute-sanitizer, is given by --under. What failed is printed; ends with 1 where a case did.
"""
import argparse
import concurrent.futures
import re
import shlex
import subprocess
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("pattern", nargs="?", default="", help="a regular expression; without it all cases")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60, help="that a case may take")
    parser.add_argument("--under", default="")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()

    listed = subprocess.run([arguments.program, "--list-test-names-only"], stdout=subprocess.PIPE, text=True).stdout
    names = [name for name in listed.splitlines() if name.strip() and re.search(arguments.pattern, name)]

    def run(name):
        began = time.monotonic()
        command = [*shlex.split(arguments.under), arguments.program, re.sub(r'([\\,\[\]"])', r"\\\1", name)]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                  timeout=arguments.seconds)
            verdict, text = "passed" if done.returncode == 0 else f"ended with {done.returncode}", done.stdout
        except subprocess.TimeoutExpired as error:
            verdict, text = "did not end", (error.stdout or b"").decode(errors="replace")
        return name, verdict, time.monotonic() - began, text

    failed = 0
    with open(arguments.out, "w") as out, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, name) for name in names]):
            name, verdict, seconds, text = done.result()
            line = f"{verdict} in {seconds:.1f} s: {name}"
            print(line if verdict == "passed" else f"{line}\n{text[:20000]}", file=out, flush=True)
            if verdict != "passed":
                failed += 1
                print(line, flush=True)
    print(f"{len(names)} cases, {failed} failed", flush=True)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
