#!/usr/bin/env python3
"""A training step here beside PyTorch's: same shape, batch, threads and cores, one after the other, in fp32.

    python3 tests/bench/train_step.py [--program build/release/app/ridgepoint] [--models gpt-10m gpt2-124m]

Needs torch. PyTorch runs eager: a GPT-2 with scaled_dot_product_attention, tied head, AdamW (fused) and gradient
clipping, which is what the program's step does. The median of the steps after the first two counts.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

# Both wait for their threads alike (runtime/thread_waiting.h): on a busy machine it is most of the difference otherwise.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import torch
import torch.nn.functional as F
from torch import nn

# name: hidden size, layers, heads, vocabulary, positions, batch, sequence length (the program's presets; batches that take
# seconds at most on two cores)
SHAPES = {
    "gpt-10m": (384, 6, 6, 256, 256, 16, 256),
    "gpt2-124m": (768, 12, 12, 50257, 1024, 4, 256),
}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm_1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, width, layers, heads, vocab, positions):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def pytorch_steps(shape, steps):
    *sizes, B, T = shape
    model = GPT(*sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    durations = []
    for _ in range(steps):
        tokens = torch.randint(256, (B, T + 1))
        begin = time.perf_counter()
        optimizer.zero_grad()
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        durations.append(time.perf_counter() - begin)
    return durations


def program_steps(program, name, shape, steps, threads):
    *_, B, T = shape
    with tempfile.NamedTemporaryFile(suffix=".bin") as data:
        # Bytes as 16-bit tokens.
        data.write(b"".join(bytes((byte, 0)) for byte in os.urandom(steps * B * T + T + 1)))
        data.flush()
        lines = subprocess.run(
            [program, "train", "--model", name, "--data", data.name, "--dtype", "fp32", "--device", "cpu",
             "--micro-batch", str(B), "--global-batch", str(B), "--seq-len", str(T), "--steps", str(steps),
             "--threads", str(threads), "--stream"],
            check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    events = [json.loads(line) for line in lines]
    return [event["seconds"] for event in events if event["event"] == "step"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/app/ridgepoint")
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)

    print(f"{'model':12} {'B':>3} {'T':>5} {'PyTorch ' + torch.__version__.split('+')[0]:>16} {'ridgepoint':>12} {'ratio':>6}")
    for name in arguments.models:
        shape = SHAPES[name]
        theirs = statistics.median(pytorch_steps(shape, arguments.steps)[2:])
        ours = statistics.median(program_steps(arguments.program, name, shape, arguments.steps, arguments.threads)[2:])
        print(f"{name:12} {shape[-2]:3} {shape[-1]:5} {theirs:14.3f} s {ours:10.3f} s {ours / theirs:6.2f}", flush=True)


if __name__ == "__main__":
    main()
