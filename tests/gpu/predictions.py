#!/usr/bin/env python3
"""What the program expects of a GPU run, written down before the first one: the table of tests/gpu/predictions.md.

    python3 tests/gpu/predictions.py --program build/release/app/ridgepoint > tests/gpu/predictions.md

tests/gpu/timings.py measures the same. Nothing in the table was measured on a GPU by this program.
"""
import argparse
import json
import subprocess

HARDWARE = ["h100-sxm", "h200-sxm"]
TRAINING = [("gpt2-124m", 32), ("gpt2-1558m", 8), ("llama-3.2-3b", 4)]
DECODING = ["gpt2-124m", "llama-3.2-1b", "llama-3.1-8b"]
BATCHES = [1, 8, 64]
WEIGHTS = {"bf16": [], "int8": ["--weights-dtype", "int8"], "fp8": ["--weights-dtype", "fp8"],
           "int4": ["--weights-dtype", "int4", "--weights-group", 128]}
TYPES = ["fp32", "tf32", "bf16", "fp16", "fp8"]


def predict(program, *flags):
    done = subprocess.run([program, "predict", *map(str, flags), "--format", "json"], stdout=subprocess.PIPE, text=True,
                          check=True)
    return json.loads(done.stdout)


def share_of_kind(report, kinds):
    rows = [row for row in report["rows"] if row["kind"] in kinds]
    flops, seconds = sum(row["flops"] for row in rows), sum(row["duration_seconds"] for row in rows)
    return flops / seconds / 1e12 if seconds else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/app/ridgepoint")
    arguments = parser.parse_args()

    print("# Expected of an H100 and an H200\n\nWritten by `tests/gpu/predictions.py` from datasheets and published kernels, before "
          "this program had run on a GPU.\nThe 90 % band stands in brackets. `tests/gpu/timings.py` measures the same. Attention is "
          "predicted as published kernels\nwith warpgroup instructions have it; the kernel that runs use here has mma.sync, so expect it "
          "below. GELU, and rotation with the\nKV cache's append, are predicted as the one kernel that the device has for each with its "
          "neighbour.\n")
    print("## A training step, bf16, sequences of 1024 tokens\n")
    print("| GPU | model | sequences | ms | MFU, 6N + causal attention | peak memory, GiB |\n|---|---|---|---|---|---|")
    for hardware in HARDWARE:
        for model, batch in TRAINING:
            m = predict(arguments.program, "--hardware", hardware, "--model", model, "--task", "train", "--dtype", "bf16",
                        "--seq-len", 1024, "--micro-batch", batch)["metrics"]
            print(f"| {hardware} | {model} | {batch} | {m['step_time_s'] * 1e3:.1f} [{m['step_time_low_s'] * 1e3:.1f}, "
                  f"{m['step_time_high_s'] * 1e3:.1f}] | {m['mfu_6n_causal_attention']:.1%} | "
                  f"{m['peak_memory_bytes'] / 2**30:.1f} |")
    print("\n## The same step in other types: llama-3.2-1b, 8 sequences of 1024 tokens\n")
    print("`tests/gpu/run precision` and `ridgepoint train --dtype` measure it. The kernels that run here transpose fp8 operands "
          "in passes\nof their own: expect fp8 below. fp16 takes the same kernels as bf16; what it has more is the search for "
          "infinities.\n")
    print("| GPU | type | ms | of bf16's | peak memory, GiB |\n|---|---|---|---|---|")
    for hardware in HARDWARE:
        steps = {dtype: predict(arguments.program, "--hardware", hardware, "--model", "llama-3.2-1b", "--task", "train", "--dtype",
                                dtype, "--seq-len", 1024, "--micro-batch", 8)["metrics"] for dtype in TYPES}
        for dtype, m in steps.items():
            print(f"| {hardware} | {dtype} | {m['step_time_s'] * 1e3:.1f} [{m['step_time_low_s'] * 1e3:.1f}, "
                  f"{m['step_time_high_s'] * 1e3:.1f}] | {m['step_time_s'] / steps['bf16']['step_time_s']:.2f} | "
                  f"{m['peak_memory_bytes'] / 2**30:.1f} |")
    print("\n## Decoding, bf16, a prompt of 512 tokens and 64 new ones\n")
    print("| GPU | model | sequences | ms a token | tokens/s |\n|---|---|---|---|---|")
    for hardware in HARDWARE:
        for model in DECODING:
            for batch in BATCHES:
                m = predict(arguments.program, "--hardware", hardware, "--model", model, "--task", "generate", "--dtype", "bf16",
                            "--prompt-length", 512, "--max-new-tokens", 64, "--batch-size", batch)["metrics"]
                print(f"| {hardware} | {model} | {batch} | {m['tpot_s'] * 1e3:.3f} | {batch / m['tpot_s']:.0f} |")
    print("\n## Decoding with weights in fewer bits, one sequence, a prompt of 512 tokens and 64 new ones\n")
    print("| GPU | model | weights | ms a token | bf16's over it |\n|---|---|---|---|---|")
    for hardware in HARDWARE:
        for model in ("llama-3.2-1b", "llama-3.1-8b"):
            times = {name: predict(arguments.program, "--hardware", hardware, "--model", model, "--task", "generate", "--dtype",
                                   "bf16", "--prompt-length", 512, "--max-new-tokens", 64, *flags)["metrics"]["tpot_s"]
                     for name, flags in WEIGHTS.items()}
            for name, seconds in times.items():
                print(f"| {hardware} | {model} | {name} | {seconds * 1e3:.3f} | {times['bf16'] / seconds:.2f} |")
    print("\n## Kernels of a training step of llama-3.2-1b, 16,384 tokens\n")
    print("| GPU | T | attention forward, TFLOP/s | attention backward, TFLOP/s | matrix products, TFLOP/s |\n|---|---|---|---|---|")
    for hardware in HARDWARE:
        for length in (1024, 4096, 16384):
            report = predict(arguments.program, "--hardware", hardware, "--model", "llama-3.2-1b", "--task", "train", "--dtype",
                             "bf16", "--seq-len", length, "--micro-batch", 16384 // length)["report"]
            print(f"| {hardware} | {length} | {share_of_kind(report, ['attention_flash']):.0f} | "
                  f"{share_of_kind(report, ['attention_flash_backward']):.0f} | "
                  f"{share_of_kind(report, ['matmul', 'matmul_backward_input', 'matmul_backward_weight']):.0f} |")


if __name__ == "__main__":
    main()
