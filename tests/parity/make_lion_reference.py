#!/usr/bin/env python3
"""Records what Lion does to the small hybrid of make_hybrid_reference.py: losses of ten steps, in double precision.

    python3 make_lion_reference.py [--fixtures fixtures]

Needs numpy, autograd and safetensors. The update is algorithm 2 of Chen et al. 2023 (arXiv 2302.06675); weight decay is of matrices and
of the taps of convolutions. What is recorded is described in README.md beside this.
"""
import argparse
import json
import pathlib

import autograd
import numpy
from safetensors.numpy import load_file

import make_hybrid_reference as hybrid

LEARNING_RATE, BETAS, WEIGHT_DECAY = 1e-4, (0.9, 0.99), 0.1


def decays(parameter):
    return parameter.ndim >= 2


def train(p, tokens):
    gradient = autograd.value_and_grad(hybrid.loss_of)
    momentum = {k: numpy.zeros_like(v) for k, v in p.items()}
    losses = []
    for step in range(hybrid.STEPS):
        loss, g = gradient(p, *hybrid.batch_of(tokens, step))
        losses.append(float(loss))
        for k in p:
            direction = numpy.sign(BETAS[0] * momentum[k] + (1 - BETAS[0]) * g[k])
            p[k] = p[k] - LEARNING_RATE * (direction + (WEIGHT_DECAY * p[k] if decays(p[k]) else 0))
            momentum[k] = BETAS[1] * momentum[k] + (1 - BETAS[1]) * g[k]
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixtures", type=pathlib.Path, default=pathlib.Path(__file__).parent / "fixtures")
    folder = parser.parse_args().fixtures / "nemotron-h-numpy"
    p = {k: v.astype(numpy.float64) for k, v in load_file(folder / "model.safetensors").items()}
    tokens = numpy.fromfile(folder / "tokens.bin", dtype="<u2").astype(numpy.int64)
    losses = train(p, tokens)
    (folder / "lion.json").write_text(json.dumps({"losses": losses}, indent=1) + "\n")
    print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
