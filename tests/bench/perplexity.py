#!/usr/bin/env python3
"""llama.cpp's perplexity of the pretrained model on the text of perplexity.cpp, to be read beside what that prints.

    python3 tests/bench/perplexity.py --gguf FILE [--text tests/bench/perplexity.txt] [--tokens N]

Needs llama-cpp-python and numpy.
"""
import argparse
import math
import pathlib

import llama_cpp
import numpy


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--text", default=pathlib.Path(__file__).with_suffix(".txt"))
    parser.add_argument("--tokens", type=int, default=None, help="no more than so many")
    arguments = parser.parse_args()
    model = llama_cpp.Llama(arguments.gguf, n_ctx=2048, logits_all=True, verbose=False)
    tokens = model.tokenize(pathlib.Path(arguments.text).read_bytes(), add_bos=True)[:arguments.tokens]
    surprise = 0.0
    for token, following in zip(tokens, tokens[1:]):
        model.eval([token])  # one by one, as generation reads them
        logits = numpy.asarray(model.scores[model.n_tokens - 1], dtype=numpy.float64)
        highest = logits.max()
        surprise += math.log(numpy.exp(logits - highest).sum()) + highest - logits[following]
    print(f"{len(tokens)} tokens\nllama.cpp {math.exp(surprise / (len(tokens) - 1)):.4f}")


if __name__ == "__main__":
    main()
