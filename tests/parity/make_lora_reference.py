#!/usr/bin/env python3
"""Records what LoRA learns beside a small decoder's frozen weights: losses and gradient norms of ten steps, in double.

    python3 make_lora_reference.py [--out fixtures]

Needs numpy, autograd and safetensors. The layers are Llama's by textbook formulas; an adapted weight is W + (alpha / rank) B A (Hu et al.
2021, arXiv 2106.09685, section 4.1), gradients are autograd's with respect to A and B alone, the optimizer is AdamW without decay. Tensor
names are transformers' and, of adapters, those of peft within a layer. What is recorded is described in README.md beside this.
"""
import argparse
import json
import pathlib

import autograd
import autograd.numpy as np
import numpy
from safetensors.numpy import load_file, save_file

from make_hybrid_reference import BATCH, BETAS, EPS, LEARNING_RATE, LENGTH, STEPS, batch_of, logsumexp, make_tokens

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 56,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 128, "tie_word_embeddings": False,
    "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32",
}
RANK, ALPHA = 4, 12.0
HEADS, KEY_HEADS, SIZE = (CONFIG[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
HIDDEN, WIDTH = CONFIG["hidden_size"], CONFIG["intermediate_size"]
MODULES = {"self_attn.q_proj": (HEADS * SIZE, HIDDEN), "self_attn.k_proj": (KEY_HEADS * SIZE, HIDDEN),
           "self_attn.v_proj": (KEY_HEADS * SIZE, HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * SIZE),
           "mlp.gate_proj": (WIDTH, HIDDEN), "mlp.up_proj": (WIDTH, HIDDEN), "mlp.down_proj": (HIDDEN, WIDTH)}
WORDS = {"query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj", "output": "self_attn.o_proj",
         "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
CASES = {"query_value": ["query", "value"], "mlp": ["gate", "down"], "all": list(WORDS)}


def rms_norm(x, weight):
    return x / np.sqrt(np.mean(x ** 2, axis=-1, keepdims=True) + CONFIG["rms_norm_eps"]) * weight


def rotated(x):
    """(batch, length, heads, size); the halves of a head are the two coordinates (as transformers has them)."""
    length, half = x.shape[1], SIZE // 2
    angles = numpy.arange(length)[:, None] * CONFIG["rope_theta"] ** (-2.0 * numpy.arange(half) / SIZE)
    cosine, sine = numpy.cos(angles)[None, :, None, :], numpy.sin(angles)[None, :, None, :]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def linear(frozen, adapters, name, x):
    weight = frozen[name + ".weight"]
    if name + ".lora_A.weight" in adapters:
        weight = weight + ALPHA / RANK * adapters[name + ".lora_B.weight"] @ adapters[name + ".lora_A.weight"]
    return x @ weight.T


def attention(frozen, adapters, name, x):
    batch, length = x.shape[:2]
    split = lambda part, heads: linear(frozen, adapters, f"{name}{part}_proj", x).reshape(batch, length, heads, SIZE)
    q, k, v = rotated(split("q", HEADS)), rotated(split("k", KEY_HEADS)), split("v", KEY_HEADS)
    k, v = (np.repeat(part, HEADS // KEY_HEADS, axis=2) for part in (k, v))
    scores = np.einsum("bihd,bjhd->bhij", q, k) / SIZE ** 0.5
    scores = np.where(numpy.tril(numpy.ones((length, length), dtype=bool)), scores, -1e30)
    weights = np.exp(scores - logsumexp(scores, keepdims=True))
    heads = np.einsum("bhij,bjhd->bihd", weights, v).reshape(batch, length, HEADS * SIZE)
    return linear(frozen, adapters, name + "o_proj", heads)


def loss_of(adapters, frozen, inputs, targets):
    x = frozen["model.embed_tokens.weight"][inputs]
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        x = x + attention(frozen, adapters, name + "self_attn.", rms_norm(x, frozen[name + "input_layernorm.weight"]))
        y = rms_norm(x, frozen[name + "post_attention_layernorm.weight"])
        gate = linear(frozen, adapters, name + "mlp.gate_proj", y)
        y = gate / (1 + np.exp(-gate)) * linear(frozen, adapters, name + "mlp.up_proj", y)
        x = x + linear(frozen, adapters, name + "mlp.down_proj", y)
    logits = rms_norm(x, frozen["model.norm.weight"]) @ frozen["lm_head.weight"].T
    return np.mean(logsumexp(logits) - np.sum(logits * numpy.eye(logits.shape[-1])[targets], axis=-1))


def initial(rng):
    normal = lambda *shape: rng.normal(0, 0.15, shape)
    around_one = lambda: 1 + rng.normal(0, 0.05, HIDDEN)
    p = {"model.embed_tokens.weight": normal(CONFIG["vocab_size"], HIDDEN), "model.norm.weight": around_one(),
         "lm_head.weight": normal(CONFIG["vocab_size"], HIDDEN)}
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        p |= {name + "input_layernorm.weight": around_one(), name + "post_attention_layernorm.weight": around_one()}
        for module, (outputs, inputs) in MODULES.items():
            p[name + module + ".weight"] = normal(outputs, inputs)
            # B is not 0, as it is when learning begins: the first step already has all gradients.
            p[name + module + ".lora_A.weight"] = normal(RANK, inputs)
            p[name + module + ".lora_B.weight"] = normal(outputs, RANK)
    return p


def train(p, words, tokens):
    learned = [WORDS[w] for w in words]
    adapters = {k: v for k, v in p.items() if "lora" in k and any(f".{m}.lora" in k for m in learned)}
    frozen = {k: v for k, v in p.items() if "lora" not in k}
    gradient = autograd.value_and_grad(loss_of)
    first, second = ({k: numpy.zeros_like(v) for k, v in adapters.items()} for _ in range(2))
    losses, norms = [], []
    for step in range(STEPS):
        loss, g = gradient(adapters, frozen, *batch_of(tokens, step))
        losses.append(float(loss))
        norms.append(float(numpy.sqrt(sum((v ** 2).sum() for v in g.values()))))
        for k in adapters:
            first[k] = BETAS[0] * first[k] + (1 - BETAS[0]) * g[k]
            second[k] = BETAS[1] * second[k] + (1 - BETAS[1]) * g[k] ** 2
            mean, square = first[k] / (1 - BETAS[0] ** (step + 1)), second[k] / (1 - BETAS[1] ** (step + 1))
            adapters[k] = adapters[k] - LEARNING_RATE * mean / (numpy.sqrt(square) + EPS)
    return {"targets": words, "losses": losses, "grad_norms": norms}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "fixtures")
    folder = parser.parse_args().out / "llama-lora-numpy"
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: numpy.ascontiguousarray(v, dtype=numpy.float32) for k, v in initial(numpy.random.default_rng(3)).items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    p = {k: v.astype(numpy.float64) for k, v in load_file(folder / "model.safetensors").items()}
    tokens = make_tokens(5)
    (folder / "tokens.bin").write_bytes(tokens.astype(numpy.uint16).tobytes())
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    cases = {name: train(p, words, tokens) for name, words in CASES.items()}
    (folder / "lora.json").write_text(json.dumps({"rank": RANK, "alpha": ALPHA, "cases": cases}, indent=1) + "\n")
    for name, case in cases.items():
        print(f"{name}: loss {case['losses'][0]:.4f} to {case['losses'][-1]:.4f}")


if __name__ == "__main__":
    main()
