#!/usr/bin/env python3
"""Records what SGD with momentum, Adafactor, AdamW with moments in 8 bits and Muon do to the small GPT-2 of make_references.py: losses of ten
steps each.

    python3 make_optimizer_reference.py [--fixtures fixtures]

Gradients are torch's. The first two are torch.optim's; Muon is its definition in double; AdamW in 8 bits is written here in numpy: moments are rounded to the nearest value of the
dynamic map of Dettmers et al. 2022 (arXiv 2110.02861) times the greatest magnitude of each block of 256. GPT-2 has the parameters that
plans have: its query, key and value weights are one matrix. What is recorded is described in README.md beside this.
"""
import argparse
import json
import pathlib

import numpy as np
import torch

import reference

BLOCK = 256
SETTINGS = {"sgd": {"learning_rate": 0.05, "beta1": 0.9, "weight_decay": 0.1},
            "adafactor": {"learning_rate": 0.05, "weight_decay": 0.1},
            "adamw_8bit": {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1},
            "muon": {"learning_rate": 2e-3, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1}}


def dynamic_map(signed):
    values = [0.0, 1.0]
    for exponent in range(7):
        edges = np.linspace(0.1, 1, 2 ** (exponent + (0 if signed else 1)) + 1)
        middles = 10.0 ** (exponent - 6) * (edges[:-1] + edges[1:]) / 2
        values += list(middles) + (list(-middles) if signed else [])
    return np.sort(np.array(values)).astype(np.float32)


def round_to(values, table):
    """Nearest values of the table, block by block."""
    blocks = np.zeros(-(-values.size // BLOCK) * BLOCK)
    blocks[:values.size] = values
    blocks = blocks.reshape(-1, BLOCK)
    greatest = np.abs(blocks).max(axis=1, keepdims=True)
    middles = (table[1:].astype(np.float64) + table[:-1]) / 2
    codes = np.searchsorted(middles, blocks / np.where(greatest > 0, greatest, 1))
    return (table[codes] * greatest).reshape(-1)[:values.size]


class AdamW8Bit:
    def __init__(self, parameters, learning_rate, beta1, beta2, weight_decay):
        self.parameters, self.rate, self.betas, self.decay, self.step_number = parameters, learning_rate, (beta1, beta2), weight_decay, 0
        self.moments = [[np.zeros(p.numel()), np.zeros(p.numel())] for p in parameters]

    def step(self):
        self.step_number += 1
        for p, (m, v) in zip(self.parameters, self.moments):
            # Blocks lie as plans have the matrix: (out, in), where Conv1D has (in, out).
            turn = getattr(p, "is_turned", False)
            g = (p.grad.T if turn else p.grad).reshape(-1).double().numpy()
            values = (p.data.T if turn else p.data).reshape(-1).double().numpy()
            first = self.betas[0] * m + (1 - self.betas[0]) * g
            second = self.betas[1] * v + (1 - self.betas[1]) * g * g
            step = first / (1 - self.betas[0] ** self.step_number) / (
                np.sqrt(second / (1 - self.betas[1] ** self.step_number)) + reference.EPS)
            values = values * (1 - self.rate * (self.decay if p.dim() > 1 else 0)) - self.rate * step
            m[:], v[:] = round_to(first, dynamic_map(True)), round_to(second, dynamic_map(False))
            new = torch.from_numpy(values).float()
            p.data.copy_(new.reshape(p.T.shape).T if turn else new.reshape(p.shape))


class Muon:
    """Matrices of layers by orthogonal momentum in double (Jordan et al. 2024), steps of AdamW's size (Liu et al. 2025);
    embeddings and vectors by torch's AdamW."""
    def __init__(self, model, learning_rate, beta1, beta2, weight_decay):
        self.rate, self.beta, self.decay = learning_rate, beta1, weight_decay
        of_layers = lambda name, p: ".h." in name and p.dim() > 1
        self.matrices = [p for name, p in model.named_parameters() if of_layers(name, p)]
        rest = [p for name, p in model.named_parameters() if not of_layers(name, p)]
        self.moments = [np.zeros(tuple(p.shape)) for p in self.matrices]
        self.others = torch.optim.AdamW([{"params": [p for p in rest if p.dim() > 1], "weight_decay": weight_decay},
                                         {"params": [p for p in rest if p.dim() == 1], "weight_decay": 0.0}],
                                        lr=learning_rate, betas=(beta1, beta2), eps=reference.EPS)

    @staticmethod
    def orthogonal(matrix):
        x = matrix / np.linalg.norm(matrix)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
        return x

    def step(self):
        self.others.step()
        for p, moment in zip(self.matrices, self.moments):
            gradient, values = p.grad.double().numpy(), p.data.double().numpy()
            moment += (1 - self.beta) * (gradient - moment)
            step = self.orthogonal(self.beta * moment + (1 - self.beta) * gradient)
            values = values * (1 - self.rate * self.decay) - self.rate * 0.2 * max(p.shape) ** 0.5 * step
            p.data.copy_(torch.from_numpy(values).float())


def groups(model, decay):
    return [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": decay},
            {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]


def make_optimizer(name, model):
    s = SETTINGS[name]
    if name == "sgd":
        return torch.optim.SGD(groups(model, s["weight_decay"]), lr=s["learning_rate"], momentum=s["beta1"])
    if name == "adafactor":
        return torch.optim.Adafactor(groups(model, s["weight_decay"]), lr=s["learning_rate"])
    if name == "muon":
        return Muon(model, **s)
    for module in model.modules():
        if type(module).__name__ == "Conv1D":
            module.weight.is_turned = True
    return AdamW8Bit(list(model.parameters()), **s)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixtures", type=pathlib.Path, default=pathlib.Path(__file__).parent / "fixtures")
    folder = parser.parse_args().fixtures / "gpt2-transformers5"
    tokens = np.fromfile(folder / "tokens.bin", dtype="<u2").astype(np.int64)
    recorded = {}
    for name, settings in SETTINGS.items():
        model = reference.load_model(folder)
        optimizer = make_optimizer(name, model)
        losses = []
        for step in range(reference.STEPS):
            model.zero_grad()
            loss = reference.loss_of(model, *reference.batch(tokens, step))[0]
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        recorded[name] = {"settings": settings, "losses": losses}
        print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}")
    (folder / "optimizers.json").write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
