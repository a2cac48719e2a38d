#!/usr/bin/env python3
"""Five greedy continuations of the built program, judged by llama.cpp on the same GGUF file.

    python3 check_llama_cpp.py --ridgepoint build/release/app/ridgepoint --gguf smollm2-135m-instruct.gguf

llama.cpp is led along our continuation and asked for its own choice at every token. It rounds activations to 8 bits, so
where it prefers another token by at most 0.5 in the logits that is a near-tie: counted, and printed. Where it prefers
another by more, the check fails. Prompts are tokenized by both programs and must give the same ids.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import llama_cpp
import numpy as np

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n",
    "Water boils at 100 degrees Celsius because",
]
NEAR_TIE = 0.5


def run_json(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command[:2]))} ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ridgepoint", required=True, type=pathlib.Path)
    parser.add_argument("--gguf", required=True, type=pathlib.Path)
    parser.add_argument("--max-new-tokens", type=int, default=48)
    arguments = parser.parse_args()
    llama = llama_cpp.Llama(str(arguments.gguf), n_ctx=512, logits_all=True, verbose=False)
    near_ties = wrong = 0
    for prompt in PROMPTS:
        ids = llama.tokenize(prompt.encode(), add_bos=False, special=True)
        ours = run_json([arguments.ridgepoint, "tokenize", "--model", arguments.gguf, "--text", prompt, "--format", "json"])
        if ours["ids"] != ids:
            print(f"{prompt!r}: ids differ: {ours['ids']} against {ids}")
            wrong += 1
        tokens = run_json([arguments.ridgepoint, "generate", "--model", arguments.gguf, "--prompt-tokens",
                           ",".join(map(str, ids)), "--max-new-tokens", arguments.max_new_tokens, "--temperature", "0",
                           "--ignore-eos", "--format", "json"])["tokens"]
        llama.reset()
        llama.eval(ids + tokens)
        logits = np.array(llama.scores[len(ids) - 1:len(ids) + len(tokens) - 1])
        behind = logits.max(axis=1) - logits[np.arange(len(tokens)), tokens]
        ties = [(i, round(float(d), 3)) for i, d in enumerate(behind) if 0 < d <= NEAR_TIE]
        parted = [(i, round(float(d), 3)) for i, d in enumerate(behind) if d > NEAR_TIE]
        near_ties += len(ties)
        wrong += len(parted)
        print(f"{prompt!r}: {len(tokens)} tokens, near-ties {ties}, parted {parted}")
        print("   ", repr(llama.detokenize(tokens).decode(errors="replace")))
    print(f"{near_ties} near-ties within {NEAR_TIE}, {wrong} beyond")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
