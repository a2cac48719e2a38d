#!/usr/bin/env python3
"""Time of one evaluation here beside llm-analysis (PyPI), in the same run and on the same question.

    python3 tests/bench/evaluation_time.py [--benches build/release/tests/bench]

Needs llm-analysis. The question: Llama-3-70B on 512 H100, tp 8, pp 4, dp 16, ZeRO-1, sequences of 8,192 in micro-batches
of one, 1,024 a step. llm-analysis answers with time and memory of a step from closed forms; its objects are made once and
its log is off. Here the whole prediction is timed, as `ridgepoint predict` makes it: plan, every operation's price, every
stage's timeline, memory ledger and rows of a report; and the planner's search, which finds time and memory of each of the strategies
for the same model and devices, block prices included: time of the whole over the number of evaluations, on one thread.
"""
import argparse
import logging
import statistics
import subprocess
import time

from llm_analysis.analysis import DSZeRO, LLMAnalysis
from llm_analysis.config import ModelConfig, ParallelismConfig, get_dtype_config_by_name, get_gpu_config_by_name

SEQ_LEN, BATCH = 8192, 1024
TENSOR, PIPELINE, DATA = 8, 4, 16


def llm_analysis_microseconds(repeat):
    logging.disable(logging.CRITICAL)
    analysis = LLMAnalysis(
        ModelConfig(name="llama-3-70b", num_layers=80, n_head=64, hidden_dim=8192, vocab_size=128256, max_seq_len=SEQ_LEN,
                    num_key_value_heads=8, ffn_embed_dim=28672, expansion_ratio=28672 / 8192, model_type="llama"),
        get_gpu_config_by_name("h100-sxm-80gb"), get_dtype_config_by_name("w16a16e16"),
        ParallelismConfig(tp_size=TENSOR, pp_size=PIPELINE, dp_size=DATA, sp_size=TENSOR), flops_efficiency=0.5)
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        analysis.training(batch_size_per_gpu=1, global_batch_size=BATCH, seq_len=SEQ_LEN, ds_zero=DSZeRO(1),
                          mlp_gated_linear_units=True)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--benches", default="build/release/tests/bench")
    parser.add_argument("--repeat", type=int, default=200)
    args = parser.parse_args()
    theirs = llm_analysis_microseconds(args.repeat)
    ours = {}
    for bench in ("predict_bench", "planner_bench"):
        for line in subprocess.run([f"{args.benches}/{bench}", "--one"], check=True, capture_output=True,
                                   text=True).stdout.splitlines():
            what, microseconds = line.rsplit(maxsplit=1)
            ours[what] = float(microseconds)
    print(f"{'one evaluation':<52}{'us':>10}{'llm-analysis / ours':>22}")
    print(f"{'llm-analysis':<52}{theirs:>10.1f}{1:>22.1f}")
    for what, microseconds in ours.items():
        print(f"{what:<52}{microseconds:>10.3f}{theirs / microseconds:>22.2f}")


if __name__ == "__main__":
    main()
