#!/usr/bin/env python3
"""Records a small hybrid of Mamba-2, attention and feed-forward layers, and what textbook formulas compute with it.

    python3 make_hybrid_reference.py [--out fixtures]

Needs numpy, autograd and safetensors. The scan is its recurrence, token by token, in double precision (Dao & Gu 2024, arXiv
2405.21060, equation 1 with the discretisation of section 2), gradients are autograd's: nothing is shared with the program's kernels,
which go chunk by chunk in fp32. Tensor names, their order inside of a projection and config.json are those of Nemotron-H
(https://huggingface.co/nvidia/Nemotron-H-8B-Base-8K). What is recorded is described in README.md beside this.
"""
import argparse
import json
import pathlib

import autograd
import autograd.numpy as np
import numpy
from safetensors.numpy import load_file, save_file

BATCH, LENGTH, STEPS = 2, 64, 10
LEARNING_RATE, BETAS, EPS = 1e-3, (0.9, 0.95), 1e-8
PROMPT, NEW_TOKENS = [1, 2, 3], 24
WARM_UP_STEPS = 60
MIN_MARGIN = 0.01

CONFIG = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hybrid_override_pattern": "M-*M-M",
    "num_hidden_layers": 6, "hidden_size": 32, "intermediate_size": 48, "mlp_hidden_act": "relu2", "vocab_size": 256,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "attention_bias": False, "mlp_bias": False,
    "mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 12, "n_groups": 2, "conv_kernel": 4, "chunk_size": 16,
    "use_conv_bias": True, "use_bias": False, "mamba_hidden_act": "silu", "mamba_proj_bias": False,
    "time_step_limit": [0.0, float("inf")], "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
    "max_position_embeddings": 128, "torch_dtype": "float32",
}
HEADS, HEAD_DIM, STATES, GROUPS = (CONFIG[k] for k in ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups"))
INNER, CONV = HEADS * HEAD_DIM, HEADS * HEAD_DIM + 2 * GROUPS * STATES
TAPS, EPSILON = CONFIG["conv_kernel"], CONFIG["layer_norm_epsilon"]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def logsumexp(x, keepdims=False):
    highest = np.max(x, axis=-1, keepdims=True)
    result = highest + np.log(np.sum(np.exp(x - highest), axis=-1, keepdims=True))
    return result if keepdims else result[..., 0]


def silu(x):
    return x * sigmoid(x)


def rms_norm(x, weight, groups=1):
    parts = x.reshape(x.shape[:-1] + (groups, -1))
    parts = parts / np.sqrt(np.mean(parts ** 2, axis=-1, keepdims=True) + EPSILON)
    return parts.reshape(x.shape) * weight


def mamba(p, name, x):
    batch, length = x.shape[:2]
    projected = x @ p[name + "in_proj.weight"].T
    gate, xbc, dt = projected[..., :INNER], projected[..., INNER:INNER + CONV], projected[..., INNER + CONV:]
    padded = np.concatenate([np.zeros((batch, TAPS - 1, CONV)), xbc], axis=1)
    taps = p[name + "conv1d.weight"][:, 0, :]
    xbc = silu(sum(padded[:, k:k + length] * taps[:, k] for k in range(TAPS)) + p[name + "conv1d.bias"])
    values = xbc[..., :INNER].reshape(batch, length, HEADS, HEAD_DIM)
    per_group = HEADS // GROUPS
    spread = lambda a: np.repeat(a.reshape(batch, length, GROUPS, STATES), per_group, axis=2)
    b, c = spread(xbc[..., INNER:INNER + GROUPS * STATES]), spread(xbc[..., INNER + GROUPS * STATES:])
    dt = np.logaddexp(0, dt + p[name + "dt_bias"])
    decay = np.exp(dt * -np.exp(p[name + "A_log"]))
    state, outputs = np.zeros((batch, HEADS, STATES, HEAD_DIM)), []
    for t in range(length):
        written = (dt[:, t, :, None] * b[:, t])[..., None] * values[:, t, :, None, :]
        state = decay[:, t, :, None, None] * state + written
        outputs.append(np.sum(c[:, t][..., None] * state, axis=2) + p[name + "D"][:, None] * values[:, t])
    y = np.stack(outputs, axis=1).reshape(batch, length, INNER)
    return rms_norm(y * silu(gate), p[name + "norm.weight"], GROUPS) @ p[name + "out_proj.weight"].T


def attention(p, name, x):
    batch, length = x.shape[:2]
    heads, key_heads, size = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"], CONFIG["head_dim"]
    split = lambda part, n: (x @ p[name + part + "_proj.weight"].T).reshape(batch, length, n, size)
    q = split("q", heads)
    k, v = (np.repeat(split(part, key_heads), heads // key_heads, axis=2) for part in "kv")
    scores = np.einsum("bihd,bjhd->bhij", q, k) / size ** 0.5
    scores = np.where(numpy.tril(numpy.ones((length, length), dtype=bool)), scores, -1e30)
    weights = np.exp(scores - logsumexp(scores, keepdims=True))
    return np.einsum("bhij,bjhd->bihd", weights, v).reshape(batch, length, heads * size) @ p[name + "o_proj.weight"].T


def feed_forward(p, name, x):
    return np.maximum(x @ p[name + "up_proj.weight"].T, 0) ** 2 @ p[name + "down_proj.weight"].T


MIXERS = {"M": mamba, "*": attention, "-": feed_forward}


def logits_of(p, tokens):
    x = p["backbone.embeddings.weight"][tokens]
    for layer, letter in enumerate(CONFIG["hybrid_override_pattern"]):
        name = f"backbone.layers.{layer}."
        x = x + MIXERS[letter](p, name + "mixer.", rms_norm(x, p[name + "norm.weight"]))
    return rms_norm(x, p["backbone.norm_f.weight"]) @ p["lm_head.weight"].T


def loss_of(p, inputs, targets):
    logits = logits_of(p, inputs)
    chosen = np.sum(logits * numpy.eye(logits.shape[-1])[targets], axis=-1)
    return np.mean(logsumexp(logits) - chosen)


def initial_parameters(rng):
    hidden, width, vocab = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
    query, key = (CONFIG[n] * CONFIG["head_dim"] for n in ("num_attention_heads", "num_key_value_heads"))
    normal = lambda *shape: rng.normal(0, 0.08, shape)
    around_one = lambda n: 1 + rng.normal(0, 0.05, n)
    p = {"backbone.embeddings.weight": normal(vocab, hidden), "backbone.norm_f.weight": around_one(hidden),
         "lm_head.weight": normal(vocab, hidden)}
    for layer, letter in enumerate(CONFIG["hybrid_override_pattern"]):
        name = f"backbone.layers.{layer}."
        p[name + "norm.weight"] = around_one(hidden)
        name += "mixer."
        if letter == "M":
            p |= {name + "in_proj.weight": normal(INNER + CONV + HEADS, hidden),
                  name + "conv1d.weight": rng.uniform(-0.5, 0.5, (CONV, 1, TAPS)), name + "conv1d.bias": normal(CONV),
                  name + "dt_bias": rng.uniform(-4, 0, HEADS), name + "A_log": numpy.log(rng.uniform(1, 16, HEADS)),
                  name + "D": around_one(HEADS), name + "norm.weight": around_one(INNER),
                  name + "out_proj.weight": normal(hidden, INNER)}
        elif letter == "*":
            p |= {name + "q_proj.weight": normal(query, hidden), name + "k_proj.weight": normal(key, hidden),
                  name + "v_proj.weight": normal(key, hidden), name + "o_proj.weight": normal(hidden, query)}
        else:
            p |= {name + "up_proj.weight": normal(width, hidden), name + "down_proj.weight": normal(hidden, width)}
    return p


def make_tokens(seed, count=STEPS * BATCH * LENGTH + 1):
    rng = numpy.random.default_rng(seed)
    tokens = numpy.zeros(count, dtype=numpy.int64)
    for i in range(1, count):
        tokens[i] = (7 * tokens[i - 1] + 3) % 256 if rng.random() < 0.7 else rng.integers(256)
    return tokens


def batch_of(tokens, step):
    starts = [(step * BATCH + row) * LENGTH for row in range(BATCH)]
    return tuple(numpy.stack([tokens[s + shift:s + shift + LENGTH] for s in starts]) for shift in (0, 1))


def train(p, tokens, steps, learning_rate):
    """AdamW without decay; returns the parameters, and each step's loss and gradient norm before it."""
    gradient = autograd.value_and_grad(loss_of)
    first = {k: numpy.zeros_like(v) for k, v in p.items()}
    second = {k: numpy.zeros_like(v) for k, v in p.items()}
    losses, norms = [], []
    for step in range(steps):
        loss, g = gradient(p, *batch_of(tokens, step % STEPS))
        losses.append(float(loss))
        norms.append(float(numpy.sqrt(sum((v ** 2).sum() for v in g.values()))))
        for k in p:
            first[k] = BETAS[0] * first[k] + (1 - BETAS[0]) * g[k]
            second[k] = BETAS[1] * second[k] + (1 - BETAS[1]) * g[k] ** 2
        unbiased = lambda moments, k, beta: moments[k] / (1 - beta ** (step + 1))
        p = {k: v - learning_rate * unbiased(first, k, BETAS[0]) / (numpy.sqrt(unbiased(second, k, BETAS[1])) + EPS)
             for k, v in p.items()}
    return p, losses, norms


def generate(p):
    tokens, margin = list(PROMPT), float("inf")
    for _ in range(NEW_TOKENS):
        last = logits_of(p, numpy.array([tokens]))[0, -1]
        best = numpy.argsort(last)[::-1][:2]
        margin = min(margin, float(last[best[0]] - last[best[1]]))
        tokens.append(int(best[0]))
    return {"prompt": PROMPT, "tokens": tokens[len(PROMPT):], "min_margin": margin}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "fixtures")
    folder = parser.parse_args().out / "nemotron-h-numpy"
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(20):
        p, _, _ = train(initial_parameters(numpy.random.default_rng(seed)), make_tokens(seed + 100), WARM_UP_STEPS, 1e-2)
        save_file({k: numpy.ascontiguousarray(v, dtype=numpy.float32) for k, v in p.items()}, folder / "model.safetensors",
                  metadata={"format": "pt"})
        p = {k: v.astype(numpy.float64) for k, v in load_file(folder / "model.safetensors").items()}
        generation = generate(p)
        if generation["min_margin"] >= MIN_MARGIN:
            break
    else:
        raise RuntimeError("no seed gives clear greedy choices")
    tokens = make_tokens(5)
    (folder / "tokens.bin").write_bytes(tokens.astype(numpy.uint16).tobytes())
    config = CONFIG | {"time_step_limit": [0.0, 1e30]}  # JSON has no infinity
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    first_logits = logits_of(p, batch_of(tokens, 0)[0])
    _, losses, norms = train(p, tokens, STEPS, LEARNING_RATE)
    expected = {
        "made_with": {"numpy": numpy.__version__, "autograd": "1.9"},
        "training": {"losses": losses, "grad_norms": norms,
                     "first_logits": {"sum": float(first_logits.sum()), "abs_sum": float(numpy.abs(first_logits).sum()),
                                      "first_row_last_position": first_logits[0, -1, :16].tolist()}},
        "generation": generation}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(f"{folder.name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, margin {generation['min_margin']:.3f}")


if __name__ == "__main__":
    main()
