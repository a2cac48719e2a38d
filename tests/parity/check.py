#!/usr/bin/env python3
"""Runs the built program beside Hugging Face transformers and compares.

    python3 check.py --ridgepoint build/release/app/ridgepoint [--width 64] [--tolerance 1e-4] [--llama-cpp SOURCE] [--only NAME]
        [DIR ...]

Each family of reference.py is made afresh (at another size than the recorded ones); each DIR is a model folder
(config.json, *.safetensors), trained on its tokens.bin if it has one, else on drawn tokens. Losses and gradient norms of
10 steps must agree to the tolerance, relative; greedy tokens must be equal. With llama.cpp's SOURCE (gguf_files.py) its
converter makes a GGUF file of each family, from which the same must come. Prints a table; ends with 1 if any differs.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import gguf_files
import reference


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def ridgepoint_training(program, folder, tokens, capacity):
    output = run([program, "train", "--model", folder, "--data", tokens, "--steps", reference.STEPS, "--micro-batch",
                  reference.BATCH, "--seq-len", reference.LENGTH, "--lr", "1e-3", "--lr-schedule", "constant",
                  "--weight-decay", "0", "--beta1", "0.9", "--beta2", "0.95", "--eps", "1e-8", "--grad-clip", "0",
                  "--expert-capacity-factor", capacity, "--data-order", "sequential", "--dtype", "fp32",
                  "--device", "cpu", "--stream"])
    steps = [event for event in map(json.loads, output.splitlines()) if event.get("event") == "step"]
    return [s["loss"] for s in steps], [s["grad_norm"] for s in steps]


def ridgepoint_generation(program, folder):
    output = run([program, "generate", "--model", folder, "--prompt-tokens", ",".join(map(str, reference.PROMPT)),
                  "--max-new-tokens", reference.NEW_TOKENS, "--temperature", "0", "--ignore-eos", "--format", "json"])
    return json.loads(output)["tokens"]


def worst(ours, theirs):
    if len(ours) != len(theirs):
        return float("inf")
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


def expected_of(folder):
    """What transformers makes of a model folder, and the tokens that it was trained on."""
    vocabulary = reference.load_model(folder).config.vocab_size
    path = pathlib.Path(folder) / "tokens.bin"
    if path.exists():
        tokens = np.fromfile(path, dtype=reference.token_dtype(vocabulary)).astype(np.int64)
    else:
        tokens = reference.make_tokens(vocabulary)
    return {"training": reference.train(reference.load_model(folder), tokens),
            "generation": reference.generate(reference.load_model(folder))}, tokens, vocabulary


def check(program, label, folder, expected, tokens_file, tolerance):
    try:
        losses, norms = ridgepoint_training(program, folder, tokens_file,
                                            expected["training"].get("expert_capacity_factor", 0))
        generated = ridgepoint_generation(program, folder)
    except (RuntimeError, KeyError, ValueError) as error:
        print(f"{str(label):28} FAILED  {error}")
        return False
    loss_error = worst(losses, expected["training"]["losses"])
    norm_error = worst(norms, expected["training"]["grad_norms"])
    same = generated == expected["generation"]["tokens"]
    passed = loss_error <= tolerance and norm_error <= tolerance and same
    print(f"{str(label):28} {'passed' if passed else 'FAILED'}  loss {loss_error:.1e}  grad norm {norm_error:.1e}  tokens "
          f"{'equal' if same else 'differ'} (least margin {expected['generation']['min_margin']:.3f})")
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ridgepoint", required=True, type=pathlib.Path)
    parser.add_argument("--width", type=int, default=64, help="hidden size of the models made here")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--llama-cpp", type=pathlib.Path, metavar="SOURCE")
    parser.add_argument("--only", choices=reference.FAMILIES, metavar="NAME", help="one family")
    parser.add_argument("folders", nargs="*", metavar="DIR")
    arguments = parser.parse_args()
    passed = True
    print(f"transformers {reference.transformers.__version__}, largest relative error over {reference.STEPS} steps")
    with tempfile.TemporaryDirectory() as scratch:
        for name in [arguments.only] if arguments.only else reference.FAMILIES:
            folder = pathlib.Path(scratch) / name
            expected = reference.make_reference(name, folder, arguments.width)
            tokens_file = folder / "tokens.bin"
            passed &= check(arguments.ridgepoint, name, folder, expected, tokens_file, arguments.tolerance)
            if not arguments.llama_cpp:
                continue
            if name in gguf_files.NOT_THERE:
                print(f"{'  as GGUF':28} none    {gguf_files.NOT_THERE[name]}")
                continue
            file = folder.with_suffix(".gguf")
            gguf_files.convert(arguments.llama_cpp, folder, file)
            passed &= check(arguments.ridgepoint, "  as GGUF", file, expected, tokens_file, arguments.tolerance)
        for folder in arguments.folders:
            expected, tokens, vocabulary = expected_of(folder)
            tokens_file = pathlib.Path(scratch) / "tokens.bin"
            tokens_file.write_bytes(tokens.astype(reference.token_dtype(vocabulary)).tobytes())
            passed &= check(arguments.ridgepoint, folder, folder, expected, tokens_file, arguments.tolerance)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
