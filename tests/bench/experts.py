#!/usr/bin/env python3
"""A FLOP of experts beside one of the same model without them: a training step of a 10M Llama whose feed-forward layers are
eight experts, two for a token, beside the same Llama and beside gpt-10m. They take turns, some steps each, so that a machine
whose pace changes changes it for all; the ratio is the median over the turns.

    python3 tests/bench/experts.py [--types fp32 bf16] [--turns N]
"""
import argparse
import json
import statistics
import subprocess
import sys

B, T, STEPS = 8, 256, 6
LLAMA = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 6,
         "num_key_value_heads": 6, "head_dim": 64, "vocab_size": 256}
MODELS = {
    "experts": {"extends": "mixtral-8x7b", **LLAMA, "moe_intermediate_size": 1024},
    "the same Llama": {"extends": "tinyllama-1.1b", **LLAMA},
    "gpt-10m": "gpt-10m",
}


def seconds_a_flop(program, model, dtype):
    scenario = {"model": model, "hardware": "this-machine", "implementation": "ridgepoint",
                "workload": {"task": "train", "seq_len": T, "micro_batch_size": B, "global_batch_size": B}}
    run = subprocess.run([program, "train", "--scenario", "-", "--dtype", dtype, "--steps", str(STEPS), "--format", "json"],
                         input=json.dumps(scenario), capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    metrics = json.loads(run.stdout)["metrics"]
    return metrics["step_time_s"] / metrics["flops"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/app/ridgepoint")
    parser.add_argument("--types", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'type':4} {'beside':>16} {'GFLOP/s':>8} {'experts':>8} {'as fast a FLOP':>15}", flush=True)
    for dtype in arguments.types:
        turns = [{name: seconds_a_flop(arguments.program, model, dtype) for name, model in MODELS.items()}
                 for _ in range(arguments.turns)]
        rate = {name: 1e-9 / statistics.median(turn[name] for turn in turns) for name in MODELS}
        for name in list(MODELS)[1:]:
            ratio = statistics.median(turn[name] / turn["experts"] for turn in turns)
            print(f"{dtype:4} {name:>16} {rate[name]:8.0f} {rate['experts']:8.0f} {ratio:15.2f}", flush=True)


if __name__ == "__main__":
    main()
