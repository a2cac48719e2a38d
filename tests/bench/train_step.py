#!/usr/bin/env python3
"""A training step here beside PyTorch's, eager and compiled, and beside llm.c's: same shape, batch, type, threads and cores.
The two take turns: a step here, one there. A machine whose pace changes by half within a minute changes it for both, and
the ratio is the median over the turns.

    python3 tests/bench/train_step.py [--models gpt-10m gpt2-124m smollm2-360m] [--types fp32 bf16] [--beside eager compiled]
    python3 tests/bench/train_step.py --llm-c FOLDER/train_gpt2     GPT-2 124M at its 4 sequences of 64 tokens, fp32

Needs torch, and a C++ compiler for `compiled`. PyTorch's models are written below as one would write them for speed:
scaled_dot_product_attention, tied head, AdamW (fused) and gradient clipping, which is what the program's step does; bf16 by
autocast. The first three turns do not count.
"""
import argparse
import array
import json
import os
import pathlib
import signal
import statistics
import struct
import subprocess
import tempfile
import time
from typing import NamedTuple

# Both wait for their threads alike (runtime/thread_waiting.h): on a busy machine it is most of the difference otherwise.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import torch
import torch.nn.functional as F
from torch import nn

UNCOUNTED = 3  # turns, in which memory is first touched and kernels are chosen


class Shape(NamedTuple):
    width: int
    layers: int
    heads: int
    vocab: int
    positions: int  # learned ones; 0: rotary
    B: int
    T: int
    kv_heads: int = 0  # of a Llama
    inner: int = 0     # of its feed-forward


# The program's presets, at batches that take seconds at most on two cores.
SHAPES = {
    "gpt-10m": Shape(384, 6, 6, 256, 256, 16, 256),
    "gpt2-124m": Shape(768, 12, 12, 50257, 1024, 4, 256),
    "smollm2-360m": Shape(960, 32, 15, 49152, 0, 1, 512, kv_heads=5, inner=2560),
}
LLM_C_SHAPE = SHAPES["gpt2-124m"]._replace(B=4, T=64)  # as its source has them


class GptBlock(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads = s.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(s.width), nn.LayerNorm(s.width)
        self.qkv, self.out = nn.Linear(s.width, 3 * s.width), nn.Linear(s.width, s.width)
        self.up, self.down = nn.Linear(s.width, 4 * s.width), nn.Linear(4 * s.width, s.width)

    def forward(self, x, _):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm_1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s, self.size = s, s.width // s.heads
        self.norm_1, self.norm_2 = nn.RMSNorm(s.width, eps=1e-5), nn.RMSNorm(s.width, eps=1e-5)
        self.qkv = nn.Linear(s.width, (s.heads + 2 * s.kv_heads) * self.size, bias=False)
        self.out = nn.Linear(s.width, s.width, bias=False)
        self.gate_up, self.down = nn.Linear(s.width, 2 * s.inner, bias=False), nn.Linear(s.inner, s.width, bias=False)

    def rotate(self, x, angles):
        cos, sin = angles
        left, right = x.chunk(2, dim=-1)
        return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1).to(x.dtype)

    def forward(self, x, angles):
        B, T, C = x.shape
        s = self.s
        q, k, v = (y.view(B, T, -1, self.size).transpose(1, 2) for y in self.qkv(self.norm_1(x)).split(
            [C, s.kv_heads * self.size, s.kv_heads * self.size], dim=2))
        q, k = self.rotate(q, angles), self.rotate(k, angles)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.tokens = nn.Embedding(s.vocab, s.width)
        self.positions = nn.Embedding(s.positions, s.width) if s.positions else None
        self.blocks = nn.ModuleList(LlamaBlock(s) if s.kv_heads else GptBlock(s) for _ in range(s.layers))
        self.norm = nn.RMSNorm(s.width, eps=1e-5) if s.kv_heads else nn.LayerNorm(s.width)
        half = s.width // s.heads // 2
        angles = torch.outer(torch.arange(s.T), 1e4 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, inputs, targets):
        x = self.tokens(inputs)
        if self.positions:
            x = x + self.positions(torch.arange(inputs.shape[1]))
        for block in self.blocks:
            x = block(x, (self.cos, self.sin))
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def pytorch_steps(shape, dtype, compiled):
    """The seconds of one step after the other, each made when it is asked for."""
    model = Model(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    run = torch.compile(model) if compiled else model
    while True:
        tokens = torch.randint(256, (shape.B, shape.T + 1))
        begin = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield time.perf_counter() - begin


def printed_steps(command, seconds_of, **options):
    """The seconds of one step after the other of a program that prints each when it is done. It is stopped until the next
    one is asked for: by then it is some way into a step, which the stop makes longer, and which is left out."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            whole = True
            for seconds in map(seconds_of, process.stdout):
                if seconds is None:
                    continue
                if whole:
                    process.send_signal(signal.SIGSTOP)
                    yield seconds
                    process.send_signal(signal.SIGCONT)
                whole = not whole
            raise SystemExit(f"{command[0]} ended before its steps were done")
        finally:
            process.kill()


def llm_c_steps(program, threads):
    """llm.c reads a checkpoint and a data set by name: random ones, in its formats (train_gpt2.c, llmc/dataloader.h)."""
    s, padded = LLM_C_SHAPE, 50304
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder, "dev/data/tinyshakespeare")
        data.mkdir(parents=True)
        count = padded * s.width + s.positions * s.width + s.layers * (12 * s.width**2 + 13 * s.width) + 2 * s.width
        with open(pathlib.Path(folder, "gpt2_124M.bin"), "wb") as file:
            file.write(struct.pack("256i", 20240326, 3, s.positions, s.vocab, s.layers, s.heads, s.width, padded, *[0] * 248))
            file.write((0.02 * torch.randn(count)).numpy().tobytes())
        for name in ("tiny_shakespeare_train.bin", "tiny_shakespeare_val.bin"):
            tokens = array.array("H", os.urandom(2 * 40000))
            for i, token in enumerate(tokens):
                tokens[i] = token % s.vocab
            (data / name).write_bytes(struct.pack("256i", 20240520, 1, len(tokens), *[0] * 253) + tokens.tobytes())
        # Its lines come as they are printed.
        yield from printed_steps(
            ["stdbuf", "-oL", pathlib.Path(program).resolve()],
            lambda line: float(line.split("took ")[1].split()[0]) / 1e3 if line.startswith("step ") else None,
            cwd=folder, env={**os.environ, "OMP_NUM_THREADS": str(threads)})


def program_steps(program, name, shape, dtype, steps, threads):
    def seconds_of(line):
        event = json.loads(line)
        return event["seconds"] if event["event"] == "step" else None

    with tempfile.NamedTemporaryFile(suffix=".bin") as data:
        # Bytes as 16-bit tokens.
        data.write(b"".join(bytes((byte, 0)) for byte in os.urandom(steps * shape.B * shape.T + shape.T + 1)))
        data.flush()
        yield from printed_steps(
            [program, "train", "--model", name, "--data", data.name, "--dtype", dtype, "--device", "cpu",
             "--micro-batch", str(shape.B), "--global-batch", str(shape.B), "--seq-len", str(shape.T), "--steps", str(steps),
             "--threads", str(threads), "--stream"], seconds_of)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/app/ridgepoint")
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--types", nargs="+", default=["fp32"], choices=["fp32", "bf16"])
    parser.add_argument("--beside", nargs="+", default=["eager"], choices=["eager", "compiled"])
    parser.add_argument("--llm-c", metavar="PROGRAM", help="beside llm.c's train_gpt2 alone")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    if arguments.turns <= UNCOUNTED:
        parser.error(f"--turns is above {UNCOUNTED}: the first {UNCOUNTED} are not counted")
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)

    pytorch = "PyTorch " + torch.__version__.split("+")[0]
    print(f"{'model':14} {'type':4} {'B':>3} {'T':>5} {'beside':>24} {'step':>9} {'ridgepoint':>11} {'times as fast':>14}",
          flush=True)

    def tell(name, shape, dtype, what, their_steps):
        # printed_steps leaves every second step out.
        our_steps = program_steps(arguments.program, name, shape, dtype, 2 * arguments.turns + 1, arguments.threads)
        turns = [(next(our_steps), next(their_steps)) for _ in range(arguments.turns)][UNCOUNTED:]
        our_steps.close()
        their_steps.close()
        ours, theirs = (statistics.median(seconds) for seconds in zip(*turns))
        ratio = statistics.median(theirs / ours for ours, theirs in turns)
        print(f"{name:14} {dtype:4} {shape.B:3} {shape.T:5} {what:>24} {theirs:7.3f} s {ours:9.3f} s {ratio:14.2f}", flush=True)

    if arguments.llm_c:
        return tell("gpt2-124m", LLM_C_SHAPE, "fp32", "llm.c", llm_c_steps(arguments.llm_c, arguments.threads))
    for name in arguments.models:
        for dtype in arguments.types:
            for how in arguments.beside:
                tell(name, SHAPES[name], dtype, f"{pytorch} {how}", pytorch_steps(SHAPES[name], dtype, how == "compiled"))


if __name__ == "__main__":
    main()
