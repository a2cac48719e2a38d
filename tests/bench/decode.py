#!/usr/bin/env python3
"""Prompt and decode here beside llama.cpp's, on the same file, threads and cores.

    python3 tests/bench/decode.py --gguf FILE [--program build/release/app/ridgepoint]
    python3 tests/bench/decode.py --gguf FILE --as-1b Q8_0 Q4_0     models of a 1B shape, of random weights, FILE's tokenizer
    python3 tests/bench/decode.py --gguf FILE --as-experts Q4_K_M   models with 32 experts in each layer, 8 of which a token passes

Needs llama-cpp-python, and gguf for shapes. Types that gguf cannot write, such as Q6_K, and Q4_K_M, which mixes types,
llama.cpp writes from Q8_0. Both programs compute with the weights as the file stores them; at one sequence,
decode is bound by reading them. Decode: the median of single tokens after a prompt of eight. Prompt: one of 512 tokens.
"""
import argparse
import ctypes
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

PROMPT = "The ridge point of a roofline is"
PROMPT_TOKENS = 512



@dataclasses.dataclass
class Shape:
    """Of a model; the vocabulary is the tokenizer's."""
    name: str
    inner: int
    width: int = 2048
    layers: int = 16
    heads: int = 32
    kv_heads: int = 8
    experts: int = 0
    chosen: int = 0


LLAMA_1B = Shape("1B", 8192)  # Llama 3.2 1B (presets/models/llama-3.2-1b.json)
# Layers of Qwen3-30B-A3B (presets/models/qwen3-30b-a3b.json) with a quarter of its experts, as Mixtral routes them.
EXPERTS = Shape("32 experts", 768, experts=32, chosen=8)


def llama_cpp_seconds(gguf, threads, new_tokens):
    """Seconds of the long prompt, and of each token after the short one."""
    import llama_cpp
    model = llama_cpp.Llama(str(gguf), n_ctx=1024, n_batch=PROMPT_TOKENS, n_threads=threads, n_threads_batch=threads, verbose=False)
    prompts = []
    for _ in range(3):
        model.reset()
        begin = time.perf_counter()
        model.eval(list(range(100, 100 + PROMPT_TOKENS)))
        model.sample(temp=0.0)
        prompts.append(time.perf_counter() - begin)
    model.reset()
    model.eval(model.tokenize(PROMPT.encode()))
    durations = []
    for _ in range(new_tokens):
        begin = time.perf_counter()
        model.eval([model.sample(temp=0.0)])
        durations.append(time.perf_counter() - begin)
    return min(prompts), statistics.median(durations)


def program_tokens(program, model, threads, prompt, new_tokens):
    lines = subprocess.run(
        [program, "generate", "--model", str(model), *prompt, "--max-new-tokens", str(new_tokens), "--temperature", "0",
         "--ignore-eos", "--threads", str(threads), "--stream"],
        check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return [event["seconds"] for event in map(json.loads, lines) if event["event"] == "token"]


def program_seconds(program, model, threads, new_tokens):
    tokens = ",".join(str(token) for token in range(100, 100 + PROMPT_TOKENS))
    prompts = [program_tokens(program, model, threads, ["--prompt-tokens", tokens], 1)[0] for _ in range(3)]
    # The first token's seconds are the prompt's.
    return min(prompts), statistics.median(program_tokens(program, model, threads, ["--prompt", PROMPT], new_tokens)[1:])


def write_shape(shape, source, stored, target):
    """A Llama or Mixtral of random weights: layers and experts are alike, which changes no time."""
    import gguf
    import numpy
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    vocab = 0
    for field in reader.fields.values():
        if not field.name.startswith("tokenizer."):
            continue
        value = field.contents()
        if field.name == "tokenizer.ggml.tokens":
            vocab = len(value)
        kind = field.types[0]
        writer.add_key_value(field.name, value, kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    width, head = shape.width, shape.width // shape.heads
    for add, value in ((writer.add_context_length, 1024), (writer.add_embedding_length, width), (writer.add_block_count, shape.layers),
                       (writer.add_feed_forward_length, shape.inner), (writer.add_head_count, shape.heads),
                       (writer.add_head_count_kv, shape.kv_heads), (writer.add_layer_norm_rms_eps, 1e-5),
                       (writer.add_rope_dimension_count, head), (writer.add_rope_freq_base, 5e5),
                       (writer.add_vocab_size, vocab)):
        add(value)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.chosen)
    random, kind = numpy.random.default_rng(1), gguf.GGMLQuantizationType[stored]
    ones = numpy.ones(width, numpy.float32)
    made = {}

    def drawn(rows, columns):
        return (0.02 * random.standard_normal((rows, columns))).astype(numpy.float32)

    def matrix(name, rows, columns, copies=0):
        if (rows, columns) not in made:
            made[rows, columns] = gguf.quants.quantize(drawn(rows, columns), kind)
        one = made[rows, columns]
        writer.add_tensor(name, numpy.stack([one] * copies) if copies else one, raw_dtype=kind)

    kv_width = head * shape.kv_heads
    matrix("token_embd.weight", vocab, width)
    for layer in range(shape.layers):
        for name, rows, columns in (("attn_q", width, width), ("attn_k", kv_width, width), ("attn_v", kv_width, width),
                                    ("attn_output", width, width)):
            matrix(f"blk.{layer}.{name}.weight", rows, columns)
        of_experts = "_exps" if shape.experts else ""
        for name, rows, columns in (("ffn_gate", shape.inner, width), ("ffn_up", shape.inner, width),
                                    ("ffn_down", width, shape.inner)):
            matrix(f"blk.{layer}.{name}{of_experts}.weight", rows, columns, shape.experts)
        if shape.experts:
            writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", drawn(shape.experts, width))
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", ones)
    writer.add_tensor("output_norm.weight", ones)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_writes(stored):
    import gguf
    import numpy
    if stored not in gguf.GGMLQuantizationType.__members__:
        return False
    try:
        gguf.quants.quantize(numpy.zeros((1, 256), numpy.float32), gguf.GGMLQuantizationType[stored])
    except NotImplementedError:
        return False
    return True


def write_shape_as(shape, source, stored, target):
    if gguf_writes(stored):
        return write_shape(shape, source, stored, target)
    from perplexity import FORMATS, say_nothing, write_as
    import llama_cpp
    llama_cpp.llama_log_set(say_nothing, ctypes.c_void_p(0))  # it tells of each tensor
    wide = target.with_name("wide.gguf")
    write_shape(shape, source, "Q8_0", wide)
    write_as(wide, FORMATS[stored], target)
    wide.unlink()


def compare(name, gguf, arguments):
    ours = program_seconds(arguments.program, gguf, arguments.threads, arguments.new_tokens)
    theirs = llama_cpp_seconds(gguf, arguments.threads, arguments.new_tokens)
    for what, tokens, our, their in zip(("prompt", "decode"), (PROMPT_TOKENS, 1), ours, theirs):
        print(f"{name:28} {what:7} {tokens / our:9.1f} {tokens / their:10.1f} tokens/s   ratio of times {our / their:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/app/ridgepoint")
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--as-1b", nargs="+", metavar="TYPE", default=[])
    parser.add_argument("--as-experts", nargs="+", metavar="TYPE", default=[])
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    print(f"{'':28} {'':7} {'ridgepoint':>9} {'llama.cpp':>10}")
    if not arguments.as_1b and not arguments.as_experts:
        compare(pathlib.Path(arguments.gguf).stem, arguments.gguf, arguments)
    for shape, types in ((LLAMA_1B, arguments.as_1b), (EXPERTS, arguments.as_experts)):
        for stored in types:
            with tempfile.TemporaryDirectory() as folder:
                gguf = pathlib.Path(folder, f"{stored}.gguf")
                write_shape_as(shape, arguments.gguf, stored, gguf)
                compare(f"{shape.name}, {stored}", gguf, arguments)


if __name__ == "__main__":
    main()
