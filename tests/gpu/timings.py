#!/usr/bin/env python3
"""The program on this GPU beside PyTorch in the same run, and beside its own prediction.

    python3 tests/gpu/timings.py --program build/gpu/app/ridgepoint --out out/gpu/timings.json

Training steps (PyTorch with compiled blocks, autocast to bf16, its flash attention, fused AdamW), decoding of one sequence
(PyTorch with compiled blocks, replayed as a CUDA graph, a cache of fixed length), attention and matrix products. MFU counts
6 N + 6 L C T FLOPs a token (attention causally) against the dense bf16 peak of the hardware preset. Every result is appended
to the file as soon as it is there; a part that fails says so and the others go on. A part is not begun where less than half a
minute is left of the time given. Blocks are compiled, not the whole model: one block's code serves all, in seconds.
"""
import argparse
import array
import json
import pathlib
import random
import statistics
import subprocess
import tempfile
import time
import traceback

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAINING = [("gpt2-124m", 32), ("gpt2-1558m", 8), ("llama-3.2-3b", 4)]  # sequences of 1024 tokens a step
DECODING = ["gpt2-124m", "llama-3.2-1b", "llama-3.1-8b"]
LENGTH, STEPS, NEW_TOKENS, PROMPT = 1024, 12, 64, list(range(1, 65))


def preset(kind, name):
    values = json.loads((ROOT / "presets" / kind / f"{name}.json").read_text())
    return {**preset(kind, values["extends"]), **values} if "extends" in values else values


def model_preset(name):
    m = {"activation": "swiglu", **preset("models", name)}
    return {"num_key_value_heads": m["num_attention_heads"], "head_dim": m["hidden_size"] // m["num_attention_heads"], **m}


def seconds_of(work, repetitions=20, warm_up=5):
    """Median of the GPU's own time of one call."""
    for _ in range(warm_up):
        work()
    samples = []
    for _ in range(repetitions):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(samples)


class Block(nn.Module):
    """A decoder layer of either family; `cache` holds keys and values of a fixed length."""

    def __init__(self, m):
        super().__init__()
        self.m, C = m, m["hidden_size"]
        self.H, self.G = m["num_attention_heads"], m["num_key_value_heads"]
        self.D = m["head_dim"]
        self.gpt = m["activation"] == "gelu"
        norm, bias = (nn.LayerNorm if self.gpt else nn.RMSNorm), self.gpt
        self.norm_1, self.norm_2 = norm(C), norm(C)
        self.qkv = nn.Linear(C, (self.H + 2 * self.G) * self.D, bias=bias)
        self.out = nn.Linear(self.H * self.D, C, bias=bias)
        width = m["intermediate_size"]
        self.up = nn.Linear(C, width if self.gpt else 2 * width, bias=bias)
        self.down = nn.Linear(width, C, bias=bias)

    def forward(self, x, rotation=None, cache=None, position=None):
        B, T, _ = x.shape
        q, k, v = self.qkv(self.norm_1(x)).split([self.H * self.D, self.G * self.D, self.G * self.D], dim=2)
        q, k, v = (y.view(B, T, -1, self.D).transpose(1, 2) for y in (q, k, v))
        if rotation is not None:
            turn = lambda y: y * rotation[0] + torch.cat((-y[..., self.D // 2:], y[..., :self.D // 2]), -1) * rotation[1]
            q, k = turn(q), turn(k)
        if cache is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.H != self.G)
        else:
            cache[0].index_copy_(2, position, k)
            cache[1].index_copy_(2, position, v)
            seen = torch.arange(cache[0].shape[2], device=x.device) <= position
            y = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=seen[None], enable_gqa=self.H != self.G)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, -1))
        h = self.up(self.norm_2(x))
        if self.gpt:
            return x + self.down(F.gelu(h, approximate="tanh"))
        gate, up = h.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m
        self.tokens = nn.Embedding(m["vocab_size"], m["hidden_size"])
        self.gpt = m["activation"] == "gelu"
        self.positions = nn.Embedding(m["max_position_embeddings"], m["hidden_size"]) if self.gpt else None
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["num_hidden_layers"]))
        self.norm = (nn.LayerNorm if self.gpt else nn.RMSNorm)(m["hidden_size"])
        self.head = nn.Linear(m["hidden_size"], m["vocab_size"], bias=False)
        if m.get("tie_word_embeddings"):
            self.head.weight = self.tokens.weight
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)

    def rotation(self, positions, dtype):
        if self.gpt:
            return None
        D = self.blocks[0].D
        frequencies = self.m.get("rope_theta", 10000.0) ** (-torch.arange(0, D, 2, device=positions.device) / D)
        angles = positions[:, None] * torch.cat((frequencies, frequencies))[None]
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(self, tokens, caches=None, position=None):
        positions = torch.arange(tokens.shape[1], device=tokens.device) if position is None else position
        x = self.tokens(tokens)
        if self.gpt:
            x = x + self.positions(positions)
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled() else x.dtype
        rotation = self.rotation(positions, dtype)
        for i, block in enumerate(self.blocks):
            x = block(x, rotation, None if caches is None else caches[i], position)
        return self.last(x)

    def last(self, x):
        return self.head(self.norm(x))

    def compile_parts(self):
        for block in self.blocks:
            block.compile()


def torch_training(m, batch):
    model = Decoder(m).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(m["vocab_size"], (batch, LENGTH + 1), device="cuda")
    model.compile_parts()
    last = model.last
    loss_of = torch.compile(lambda x, targets: F.cross_entropy(last(x).flatten(0, 1), targets.flatten()))
    model.last = lambda x: x  # head and loss are compiled together

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(model(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return seconds_of(step, repetitions=STEPS)


def torch_decoding(m):
    model = Decoder(m).cuda().to(torch.bfloat16).eval()
    block = model.blocks[0]
    length = len(PROMPT) + NEW_TOKENS
    caches = [tuple(torch.zeros(1, block.G, length, block.D, device="cuda", dtype=torch.bfloat16) for _ in range(2))
              for _ in model.blocks]
    token, position = torch.zeros(1, 1, dtype=torch.long, device="cuda"), torch.tensor([length - 1], device="cuda")
    model.compile_parts()
    step = lambda: token.copy_(model(token, caches, position)[:, -1].argmax(-1, keepdim=True))
    with torch.inference_mode():
        aside = torch.cuda.Stream()
        with torch.cuda.stream(aside):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return seconds_of(graph.replay)


def ours(program, command, model, *flags):
    lines = subprocess.run([program, command, "--device", "cuda", "--model", model, *map(str, flags), "--stream"], check=True,
                           stdout=subprocess.PIPE, text=True, timeout=180).stdout.splitlines()
    events = [json.loads(line) for line in lines]
    wanted = {"train": "step", "generate": "token"}[command]
    seconds = [event["seconds"] for event in events if event["event"] == wanted]
    return statistics.median(seconds[2:])


def uniform_tokens(folder, vocabulary, count):
    """Tokens as PyTorch gets them: each equally often, so that no row of the embedding waits for another."""
    width = "H" if vocabulary <= 1 << 16 else "I"
    drawn = random.Random(1)
    file = folder / "tokens.bin"
    file.write_bytes(array.array(width, (drawn.randrange(vocabulary) for _ in range(count))).tobytes())
    return file


def predicted(program, hardware, command, model, *flags):
    text = subprocess.run([program, "predict", "--hardware", hardware, "--task", command, "--model", model, "--dtype", "bf16",
                           *map(str, flags), "--format", "json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(text)["metrics"]


def causal_flops_a_token(m):
    C, L, V = m["hidden_size"], m["num_hidden_layers"], m["vocab_size"]
    D, H, G = m["head_dim"], m["num_attention_heads"], m["num_key_value_heads"]
    ups = 1 if m["activation"] == "gelu" else 2
    matrices = L * (C * (H + 2 * G) * D + H * D * C + (ups + 1) * C * m["intermediate_size"]) + V * C
    return 6 * matrices + 6 * L * H * D * LENGTH


def hardware_of(gpu):
    for part, name in (("H200", "h200-sxm"), ("H100", "h100-sxm"), ("A100", "a100-sxm-80gb")):
        if part in gpu:
            return name
    raise SystemExit(f"no hardware preset is known for {gpu}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/gpu/app/ridgepoint"))
    parser.add_argument("--out", default="timings.json")
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--only", default="", help="parts whose names begin so, by commas: attention, product, training, decoding")
    arguments = parser.parse_args()
    began = time.monotonic()
    gpu = torch.cuda.get_device_name()
    hardware = hardware_of(gpu)
    chip = preset("hardware", hardware)
    peak, bandwidth = chip["bf16_tflops_dense"] * 1e12, chip["memory_bandwidth_gb_per_s"] * 1e9
    results, failures = [], 0

    def keep(**result):
        results.append(result)
        pathlib.Path(arguments.out).write_text(json.dumps({"gpu": gpu, "torch": torch.__version__, "results": results}, indent=1))
        print("  ".join(f"{name} {value:.6g}" if isinstance(value, float) else str(value)
                        for name, value in result.items()), flush=True)

    def attempt(name, part):
        nonlocal failures
        if not name.startswith(tuple(arguments.only.split(","))):
            return
        if time.monotonic() - began > arguments.seconds - 30:
            print(f"{name} was left out: {arguments.seconds:.0f} s are over", flush=True)
            return
        try:
            part()
        except Exception:
            failures += 1
            print(f"{name} failed:\n{traceback.format_exc()}", flush=True)
        torch.cuda.empty_cache()
        torch._dynamo.reset()

    def training(name, batch):
        m = model_preset(name)
        flags = ("--seq-len", LENGTH, "--micro-batch", batch)
        with tempfile.TemporaryDirectory() as folder:
            tokens = uniform_tokens(pathlib.Path(folder), m["vocab_size"], (batch * LENGTH + 1) * STEPS)
            mine = ours(arguments.program, "train", name, *flags, "--steps", STEPS, "--data", tokens, "--cuda-graphs")
        mfu = causal_flops_a_token(m) * batch * LENGTH / peak / mine
        expected = predicted(arguments.program, hardware, "train", name, *flags)
        keep(what="training", model=name, batch=batch, seconds=mine, mfu=mfu, predicted=expected)
        theirs = torch_training(m, batch)
        keep(what="training", model=name, batch=batch, torch_seconds=theirs, torch_over_ours=theirs / mine)

    def decoding(name):
        m = model_preset(name)
        flags = ("--prompt-tokens", ",".join(map(str, PROMPT)), "--max-new-tokens", NEW_TOKENS, "--ignore-eos",
                 "--cuda-graphs")
        mine = ours(arguments.program, "generate", name, *flags)
        weights = causal_flops_a_token(m) / 6 - m["num_hidden_layers"] * m["hidden_size"] * LENGTH
        expected = predicted(arguments.program, hardware, "generate", name, "--prompt-length", len(PROMPT),
                             "--max-new-tokens", NEW_TOKENS)
        keep(what="decoding", model=name, seconds=mine, mbu=2 * weights / bandwidth / mine, predicted=expected)
        theirs = torch_decoding(m)
        keep(what="decoding", model=name, torch_seconds=theirs, torch_over_ours=theirs / mine)

    def attention(T, D, H=16):
        B = max(1, 16384 // T)
        q, k, v = (torch.randn(B, H, T, D, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        flops = 2 * B * H * T * T * D  # causal, two products
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            with sdpa_kernel(backend):
                forward = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
                out = forward()
                dout = torch.randn_like(out)
                backward = lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)
                keep(what="attention", backend=backend.name, T=T, D=D, forward_tflops=flops / seconds_of(forward) / 1e12,
                     backward_tflops=2.5 * flops / seconds_of(backward) / 1e12)

    def product(M, N, K):
        a, b = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for shape in ((M, K), (N, K)))
        keep(what="product", M=M, N=N, K=K, torch_tflops=2 * M * N * K / seconds_of(lambda: a @ b.T) / 1e12)

    for D in (64, 128):
        for T in (1024, 4096, 16384):
            attempt(f"attention T={T} D={D}", lambda: attention(T, D))
    for M, N, K in ((16384, 6144, 4096), (16384, 28672, 4096), (16384, 4096, 14336), (16384, 50304, 768)):
        attempt(f"product {M}x{N}x{K}", lambda: product(M, N, K))
    for name, batch in TRAINING:
        attempt(f"training {name}", lambda: training(name, batch))
    for name in DECODING:
        attempt(f"decoding {name}", lambda: decoding(name))
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
