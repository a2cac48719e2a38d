"""PyTorch's times for the work of kernels_bench, as lines "name<TAB>seconds" that kernels_bench reads.

    python kernels_torch.py [--threads N] [--cpu-time] > torch.tsv
    kernels_bench torch.tsv

Eager mode, fp32, CPU; torch's own fused routines where it has them (scaled_dot_product_attention, rms_norm, AdamW(fused)).
Backward passes are timed alone, on gradients that are not accumulated.
"""

import argparse
import math
import time

import torch
import torch.nn.functional as F


now = time.perf_counter


def least_seconds(work):
    least, total, runs = math.inf, 0.0, 0
    while runs < 4 or total < 0.4:
        start = now()
        work()
        seconds = now() - start
        least, total, runs = min(least, seconds), total + seconds, runs + 1
    return least


def report(name, work):
    print(f"{name}\t{least_seconds(work):.9f}", flush=True)


def shape(name, **sizes):
    return name + "".join(f" {letter}={size}" for letter, size in sizes.items())


def backward_of(output, inputs):
    dout = torch.rand_like(output)
    return lambda: torch.autograd.grad(output, inputs, dout, retain_graph=True)


def matmul(M, N, K, backward):
    inp, weight, bias = torch.rand(M, K), torch.rand(N, K), torch.rand(N)
    with torch.no_grad():
        report(shape("matmul_forward", M=M, N=N, K=K), lambda: F.linear(inp, weight, bias))
        if backward:
            dout = torch.rand(M, N)
            report(shape("matmul_backward_input", M=M, N=N, K=K), lambda: dout @ weight)
            report(shape("matmul_backward_weight", M=M, N=N, K=K), lambda: (dout.t() @ inp, dout.sum(0)))


def rows(R, C, F_):
    inp = torch.rand(R, C, requires_grad=True)
    other = torch.rand(R, C)
    weight, bias = torch.rand(C, requires_grad=True), torch.rand(C, requires_grad=True)
    layernorm = lambda: F.layer_norm(inp, (C,), weight, bias, 1e-5)
    rmsnorm = lambda: F.rms_norm(inp, (C,), weight, 1e-5)
    with torch.no_grad():
        report(shape("layernorm_forward", R=R, C=C), layernorm)
        report(shape("rmsnorm_forward", R=R, C=C), rmsnorm)
        report(shape("add", R=R, C=C), lambda: inp + other)
    report(shape("layernorm_backward", R=R, C=C), backward_of(layernorm(), (inp, weight, bias)))
    report(shape("rmsnorm_backward", R=R, C=C), backward_of(rmsnorm(), (inp, weight)))

    wide = torch.rand(R, F_, requires_grad=True)
    gate_up = torch.rand(R, 2 * F_, requires_grad=True)
    gelu = lambda: F.gelu(wide, approximate="tanh")

    def swiglu():
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate) * up

    with torch.no_grad():
        report(shape("gelu_forward", R=R, F=F_), gelu)
        report(shape("swiglu_forward", R=R, F=F_), swiglu)
    report(shape("gelu_backward", R=R, F=F_), backward_of(gelu(), (wide,)))
    report(shape("swiglu_backward", R=R, F=F_), backward_of(swiglu(), (gate_up,)))


def embedding_and_loss(R, C, V):
    tokens = torch.randint(V, (R,))
    weight = torch.rand(V, C, requires_grad=True)
    position_weight = torch.rand(R, C, requires_grad=True)
    embed = lambda: F.embedding(tokens, weight) + position_weight
    with torch.no_grad():
        report(shape("embedding_forward", R=R, C=C, V=V), embed)
    report(shape("embedding_backward", R=R, C=C, V=V), backward_of(embed(), (weight, position_weight)))

    logits = torch.rand(R, V, requires_grad=True)
    with torch.no_grad():
        report(shape("cross_entropy_forward", R=R, V=V), lambda: F.cross_entropy(logits, tokens))
    report(
        shape("cross_entropy_forward_backward", R=R, V=V),
        lambda: torch.autograd.grad(F.cross_entropy(logits, tokens), (logits,)),
    )


def attention(B, T, H, G, D, standard):
    qkv = torch.rand(B, T, (H + 2 * G) * D, requires_grad=True)
    sizes = dict(B=B, T=T, H=H, G=G, D=D)

    def heads():
        q, k, v = qkv.split((H * D, G * D, G * D), dim=-1)
        return (x.view(B, T, -1, D).transpose(1, 2) for x in (q, k, v))

    def flash():
        q, k, v = heads()
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=G != H)
        return out.transpose(1, 2).reshape(B, T, H * D)

    mask = torch.ones(T, T, dtype=torch.bool).triu(1)

    def textbook():
        q, k, v = heads()
        scores = (q @ k.transpose(-2, -1) / math.sqrt(D)).masked_fill(mask, -math.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, H * D)

    for name, compute in [("flash", flash)] + ([("standard", textbook)] if standard else []):
        with torch.no_grad():
            report(shape(f"attention_{name}_forward", **sizes), compute)
        report(shape(f"attention_{name}_backward", **sizes), backward_of(compute(), (qkv,)))

    cosines, sines = torch.rand(T, D), torch.rand(T, D)

    def rope():
        q, k, _ = heads()
        turn = lambda x: torch.cat((-x[..., D // 2 :], x[..., : D // 2]), -1)
        return q * cosines + turn(q) * sines, k * cosines + turn(k) * sines

    with torch.no_grad():
        report(shape("rope_forward", **sizes), rope)


def decode_attention(B, H, G, D, keys):
    q, k, v = torch.rand(B, H, 1, D), torch.rand(B, G, keys, D), torch.rand(B, G, keys, D)
    with torch.no_grad():
        report(
            shape("attention_cached", B=B, T=1, H=H, G=G, D=D, keys=keys),
            lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=G != H),
        )


def optimizer(count):
    parameter = torch.nn.Parameter(torch.rand(count))
    parameter.grad = torch.rand(count)
    adamw = torch.optim.AdamW([parameter], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    report(shape("adamw", count=count), adamw.step)
    report(shape("squared_norm", count=count), lambda: torch.nn.utils.get_total_norm([parameter.grad]))


def sampling(V):
    logits = torch.rand(1, V)

    def top_k_top_p():
        values, ids = logits.topk(50)
        p = values.softmax(-1)
        p = p.masked_fill(p.cumsum(-1) - p >= 0.9, 0)
        return ids.gather(-1, torch.multinomial(p, 1))

    with torch.no_grad():
        report(shape("sample greedy", V=V), lambda: logits.argmax(-1))
        report(shape("sample top-k 50 top-p 0.9", V=V), top_k_top_p)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=0, help="0: torch's default")
    parser.add_argument("--cpu-time", action="store_true", help="count processor time: for a busy machine, one thread")
    arguments = parser.parse_args()
    if arguments.cpu_time:
        global now
        now = time.process_time
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)

    matmul(2048, 2048, 2048, False)
    for R in (1024, 4096):
        for N, K in ((2304, 768), (768, 768), (3072, 768), (768, 3072)):
            matmul(R, N, K, True)
        rows(R, 768, 3072)
        attention(R // 1024, 1024, 12, 12, 64, R == 1024)
    matmul(1024, 50257, 768, True)
    embedding_and_loss(1024, 768, 50257)
    optimizer(124439808)
    matmul(4096, 1536, 384, True)
    rows(4096, 384, 1536)
    attention(16, 256, 6, 6, 64, True)
    optimizer(10000000)
    for M in (1, 4, 8):
        for N, K in ((960, 576), (576, 576), (3072, 576), (576, 1536), (49152, 576)):
            matmul(M, N, K, False)
    rows(1, 576, 1536)
    decode_attention(1, 9, 3, 64, 128)
    decode_attention(1, 9, 3, 64, 2048)
    decode_attention(8, 9, 3, 64, 2048)
    decode_attention(1, 32, 8, 128, 8192)
    attention(1, 2048, 9, 3, 64, False)
    sampling(49152)


if __name__ == "__main__":
    main()
