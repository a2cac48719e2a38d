#!/usr/bin/env python3
"""llama.cpp's perplexity of the pretrained model on the texts of perplexity.cpp, to be read beside what that prints.

    python3 tests/bench/perplexity.py --gguf FILE [--text presets/texts/factory.txt ...] [--tokens N]
    python3 tests/bench/perplexity.py --gguf FILE --formats build/release/tests/bench/perplexity [--only Q4_K_M ...]

Several texts have one perplexity, over all their tokens; at most the first 2,048 tokens of each are read.

With --formats, llama.cpp writes the model's weights in each of its formats first, and both programs read each file:
both perplexities, and how far they are apart; then that of the same weights widened to F32, and how far each is from it,
since llama.cpp rounds what a layer is given to 8 bits and this program to 16. Those files are removed again
(2.2 GB for a model of 135M parameters).

With --widened llama.cpp reads each text at once and multiplies weights that are widened to F32, as it does with a BLAS: what
activations are rounded to plays no part then. llama-cpp-python has to be built for it, with
CMAKE_ARGS="-DGGML_BLAS=ON -DGGML_BLAS_VENDOR=OpenBLAS".

Needs llama-cpp-python and numpy.
"""
import argparse
import ctypes
import math
import pathlib
import subprocess
import sys
import tempfile

import llama_cpp
import numpy

MOST_TOKENS = 2048  # of a text, as in perplexity.cpp
TEXT = pathlib.Path(__file__).resolve().parents[2] / "presets/texts/factory.txt"
FORMATS = {"F32": "ALL_F32", "F16": "MOSTLY_F16", "BF16": "MOSTLY_BF16"} | {
    name: f"MOSTLY_{name}"
    for name in ("Q8_0", "Q6_K", "Q5_K_M", "Q5_1", "Q5_0", "Q4_K_M", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS", "Q3_K_M",
                                      "Q2_K")
}


def widen_weights():
    """Weights of some types are repacked otherwise, for kernels of their own, and never get to the BLAS."""
    defaults = llama_cpp.llama_model_default_params

    def without_repacking():
        how = defaults()
        how.use_extra_bufts = False
        return how

    if not list((pathlib.Path(llama_cpp.__file__).parent / "lib").glob("*ggml-blas*")):
        sys.exit("--widened needs a llama-cpp-python that was built with -DGGML_BLAS=ON; this one has no libggml-blas")
    llama_cpp.llama_cpp.llama_model_default_params = without_repacking


def perplexity_of(gguf, texts, most_tokens, widened):
    at_once = MOST_TOKENS if widened else 512
    model = llama_cpp.Llama(str(gguf), n_ctx=MOST_TOKENS, n_batch=at_once, n_ubatch=at_once, logits_all=True, verbose=False)
    surprise, read, guessed = 0.0, 0, 0
    for text in texts:
        tokens = model.tokenize(pathlib.Path(text).read_bytes(), add_bos=True)[:most_tokens]
        model.reset()
        if widened:
            model.eval(tokens)
        for place, (token, following) in enumerate(zip(tokens, tokens[1:])):
            if not widened:
                model.eval([token])  # one by one, as generation reads them
            logits = numpy.asarray(model.scores[place], dtype=numpy.float64)
            highest = logits.max()
            surprise += math.log(numpy.exp(logits - highest).sum()) + highest - logits[following]
        read, guessed = read + len(tokens), guessed + len(tokens) - 1
    return read, math.exp(surprise / guessed)


@llama_cpp.llama_log_callback
def say_nothing(level, text, data):
    pass


def write_as(gguf, file_type, target):
    how = llama_cpp.llama_model_quantize_default_params()
    how.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_{file_type}")
    how.allow_requantize = True
    if llama_cpp.llama_model_quantize(str(gguf).encode(), str(target).encode(), ctypes.byref(how)) != 0:
        sys.exit(f"llama.cpp could not write {gguf} as {file_type}")


def own_perplexity(program, gguf, texts, most_tokens):
    words = [program, "--as-stored", "--tokens", str(most_tokens), str(gguf), *map(str, texts)]
    ran = subprocess.run(words, capture_output=True, text=True)
    if ran.returncode != 0:
        return ran.stderr.strip()
    return float(ran.stdout.splitlines()[1].split("them")[1].split()[0])


def compare_formats(arguments):
    print(f"{'weights':8} {'llama.cpp':>10} {'ridgepoint':>10}  apart by  {'as F32':>10}  llama.cpp  ridgepoint")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only:
            gguf = pathlib.Path(folder) / f"{name}.gguf"
            write_as(arguments.gguf, FORMATS[name], gguf)
            read, theirs = perplexity_of(gguf, arguments.text, arguments.tokens, arguments.widened)
            own = own_perplexity(arguments.formats, gguf, arguments.text, arguments.tokens)
            widened = pathlib.Path(folder) / "widened.gguf"
            write_as(gguf, FORMATS["F32"], widened)
            exact = own_perplexity(arguments.formats, widened, arguments.text, arguments.tokens)
            if isinstance(own, str) or isinstance(exact, str):
                print(f"{name:8} {theirs:10.4f} {own} {exact}", flush=True)
            else:
                print(f"{name:8} {theirs:10.4f} {own:10.4f}  {own / theirs - 1:+8.2%}  {exact:10.4f}  {theirs / exact - 1:+9.2%}  "
                      f"{own / exact - 1:+10.2%}", flush=True)
            gguf.unlink()
    print(f"{read} tokens")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--text", nargs="+", default=[TEXT])
    parser.add_argument("--tokens", type=int, default=MOST_TOKENS, help="of each text, no more than so many")
    parser.add_argument("--formats", metavar="PROGRAM", help="tests/bench/perplexity of a build")
    parser.add_argument("--only", nargs="+", choices=FORMATS, default=list(FORMATS), help="of the formats")
    parser.add_argument("--widened", action="store_true", help="llama.cpp multiplies widened weights")
    arguments = parser.parse_args()
    if arguments.widened:
        widen_weights()
    llama_cpp.llama_log_set(say_nothing, ctypes.c_void_p(0))  # it tells of each tensor
    if arguments.formats:
        compare_formats(arguments)
        return
    tokens, perplexity = perplexity_of(arguments.gguf, arguments.text, arguments.tokens, arguments.widened)
    print(f"{tokens} tokens\nllama.cpp {perplexity:.4f}")


if __name__ == "__main__":
    main()
