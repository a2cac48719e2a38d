#!/usr/bin/env python3
"""Records small models and what transformers computes with them: tests/parity/fixtures (see README.md beside this).

    python3 make_references.py [--width 32] [--out fixtures] [NAME ...]

Run once with transformers 4 and once with 5: the folder's name tells which wrote it.
"""
import argparse
import json
import pathlib

import reference


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(reference.FAMILIES))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "fixtures")
    parser.add_argument("--width", type=int, default=32, help="hidden size")
    arguments = parser.parse_args()
    for name in arguments.names or reference.FAMILIES:
        folder = arguments.out / f"{name}-transformers{reference.MAJOR}"
        folder.mkdir(parents=True, exist_ok=True)
        expected = reference.make_reference(name, folder, arguments.width)
        (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        (folder / "generation_config.json").unlink(missing_ok=True)  # holds nothing that a test reads
        losses = expected["training"]["losses"]
        print(f"{folder.name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, margin {expected['generation']['min_margin']:.3f}")


if __name__ == "__main__":
    main()
