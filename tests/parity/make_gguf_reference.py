#!/usr/bin/env python3
"""Records what llama.cpp's converter makes of the small models in fixtures (see README.md beside this).

    python3 make_gguf_reference.py --llama-cpp SOURCE [NAME ...]

SOURCE as gguf_files.py says. Writes into each model's folder gguf.header, the file's bytes before its tensors' data, and
gguf.json: how many bytes the file has, and a hash (64-bit FNV-1a) of each tensor's data. The data is that of model.safetensors in
another order, so a test makes the file again and is held to the hashes. Factors of rotary frequencies are there as numbers.
"""
import argparse
import json
import pathlib
import tempfile

import numpy as np

import gguf_files


def fnv1a(data):
    hashed = 0xcbf29ce484222325
    for byte in bytes(data):
        hashed = (hashed ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return f"{hashed:016x}"


def main():
    fixtures = pathlib.Path(__file__).parent / "fixtures"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True, metavar="SOURCE")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    names = arguments.names or [f.name.removesuffix("-transformers5") for f in sorted(fixtures.glob("*-transformers5"))]
    for name in names:
        if name in gguf_files.NOT_THERE:
            print(f"{name}: none, {gguf_files.NOT_THERE[name]}")
            continue
        folder = fixtures / f"{name}-transformers5"
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "model.gguf"
            gguf_files.convert(arguments.llama_cpp, folder, path)
            from gguf import GGUFReader
            reader = GGUFReader(path)
            content = path.read_bytes()
            (folder / "gguf.header").write_bytes(content[:reader.data_offset])
            hashes = {t.name: fnv1a(np.ascontiguousarray(t.data).tobytes()) for t in reader.tensors}
            recorded = {"bytes": len(content), "fnv1a": hashes}
            recorded |= {"rope_freqs": t.data.tolist() for t in reader.tensors if t.name == "rope_freqs.weight"}
            (folder / "gguf.json").write_text(json.dumps(recorded, indent=1) + "\n")
        print(f"{name}: {len(hashes)} tensors, a header of {reader.data_offset} bytes")


if __name__ == "__main__":
    main()
