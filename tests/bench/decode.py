#!/usr/bin/env python3
"""Decode of the pretrained model here beside llama.cpp's on the same file, threads and cores.

    python3 tests/bench/decode.py --gguf FILE [--program build/release/app/ridgepoint]

Needs llama-cpp-python. llama.cpp keeps the weights in the file's 4 bits and reads an eighth of the bytes that fp32 weights
take; at one sequence, decode is bound by exactly that.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

PROMPT = "The ridge point of a roofline is"


def llama_cpp_seconds(gguf, threads, new_tokens):
    import llama_cpp
    model = llama_cpp.Llama(gguf, n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False)
    tokens = model.tokenize(PROMPT.encode())
    model.eval(tokens)
    durations = []
    for _ in range(new_tokens):
        begin = time.perf_counter()
        model.eval([model.sample(temp=0.0)])
        durations.append(time.perf_counter() - begin)
    return durations


def program_seconds(program, model, threads, new_tokens):
    lines = subprocess.run(
        [program, "generate", "--model", model, "--prompt", PROMPT, "--max-new-tokens", str(new_tokens), "--temperature", "0",
         "--ignore-eos", "--threads", str(threads), "--stream"],
        check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    events = [json.loads(line) for line in lines]
    return [event["seconds"] for event in events if event["event"] == "token"][1:]  # the first is prefill's


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/app/ridgepoint")
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    ours = statistics.median(program_seconds(arguments.program, arguments.gguf, arguments.threads, arguments.new_tokens))
    print(f"ridgepoint  {1 / ours:8.1f} tokens/s")
    theirs = statistics.median(llama_cpp_seconds(arguments.gguf, arguments.threads, arguments.new_tokens))
    print(f"llama.cpp   {1 / theirs:8.1f} tokens/s   ratio of times {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
