#!/usr/bin/env python3
"""Records small files written by other implementations, for tests/runtime/formats_test.cpp.

    pip install gguf==0.19.0 safetensors==0.8.0 torch numpy
    python3 make_format_reference.py --out ../runtime/data

Writes, below --out: small.gguf (each kind of metadata value, one tensor of each type that Ridgepoint reads),
small.safetensors (F32, F16, BF16) and formats.json with the values that `gguf` and `torch` read from them.
Block tensors are random bytes with finite scales: every bit of every field is exercised.
"""
import argparse
import json
import pathlib

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

# Bytes of a block, and where its fp16 scales lie (layouts of ggml-common.h).
BLOCKS = {
    "Q4_0": (18, [0]), "Q4_1": (20, [0, 2]), "Q5_0": (22, [0]), "Q5_1": (24, [0, 2]), "Q8_0": (34, [0]),
    "Q4_K": (144, [0, 2]), "Q5_K": (176, [0, 2]), "Q6_K": (210, [208]), "Q2_K": (84, [80, 82]), "Q3_K": (110, [108]),
    "IQ4_NL": (18, [0]), "IQ4_XS": (136, [0]), "MXFP4": (17, []),
}
ROWS = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    out = parser.parse_args().out
    rng = np.random.default_rng(3)
    expected = {"gguf": {}, "safetensors": {}}

    writer = gguf.GGUFWriter(out / "small.gguf", "test")
    writer.add_uint8("test.uint8", 200)
    writer.add_int8("test.int8", -100)
    writer.add_uint16("test.uint16", 60000)
    writer.add_int16("test.int16", -30000)
    writer.add_uint32("test.uint32", 4000000000)
    writer.add_int32("test.int32", -2000000000)
    writer.add_uint64("test.uint64", 2**63 + 1)
    writer.add_int64("test.int64", -(2**62))
    writer.add_float32("test.float32", 0.5)
    writer.add_float64("test.float64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "naïve €")
    writer.add_array("test.strings", ["a", "", "€"])
    writer.add_array("test.integers", [1, -2, 3])
    writer.add_array("test.numbers", [0.5, -0.25])

    plain = rng.normal(size=(3, 5)).astype(np.float32)
    writer.add_tensor("F32", plain)
    expected["gguf"]["F32"] = plain.ravel().tolist()
    halves = np.array([0.0, -0.0, 6e-8, -5.96e-8, 6.1e-5, 1.0, -2.5, 65504.0, np.inf, -np.inf], dtype=np.float16)
    writer.add_tensor("F16", halves)
    expected["gguf"]["F16"] = [repr(v) for v in halves.astype(np.float32).tolist()]
    brain = torch.tensor([0.0, 1.0, -3.140625, 1e-38, 3e38])
    writer.add_tensor("BF16", brain.bfloat16().view(torch.int16).numpy().view(np.uint8),
                      raw_dtype=gguf.GGMLQuantizationType.BF16)
    expected["gguf"]["BF16"] = brain.bfloat16().float().tolist()
    for name, (size, scales) in BLOCKS.items():
        kind = gguf.GGMLQuantizationType[name]
        blocks = rng.integers(0, 256, size=(ROWS, size), dtype=np.uint8)
        for row in blocks:
            for at in scales:
                row[at:at + 2] = np.frombuffer(np.float16(rng.normal()).tobytes(), dtype=np.uint8)
        writer.add_tensor(name, blocks, raw_dtype=kind)
        expected["gguf"][name] = gguf.quants.dequantize(blocks, kind).ravel().tolist()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    values = torch.tensor([[0.0, 1.5, -2.25], [1e-7, 3e4, 0.1]])
    save_file({"plain": values, "half": values.half(), "brain": values.bfloat16(), "scalar": torch.tensor(7.0),
               "empty": torch.zeros(0, 4)}, out / "small.safetensors", {"format": "pt"})
    expected["safetensors"] = {"plain": values.ravel().tolist(), "half": values.half().float().ravel().tolist(),
                               "brain": values.bfloat16().float().ravel().tolist(), "scalar": [7.0], "empty": []}
    (out / "formats.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
