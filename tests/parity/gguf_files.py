"""GGUF files of small models, by llama.cpp's own converter.

`source` is llama.cpp's source tree, as in the source package of llama-cpp-python: pip download --no-deps --no-binary :all:
llama-cpp-python==0.3.36, then vendor/llama.cpp. Its Python needs gguf, transformers and torch.
"""
import json
import logging
import pathlib
import shutil
import sys
import tempfile

# What GGUF files cannot say of a family here, or why there are none.
NOT_THERE = {
    "opt": "llama.cpp has no such architecture",
    "mistral-window": "files of this architecture do not tell of windows",
    "qwen2-moe": "files have experts in every layer",
    "gemma2": "files do not tell what scores are divided by",
    "gemma3": "files do not tell which layers have windows",
    "llama4": "files do not tell how long segments are",
    "deepseek-v3-mtp": "files have no modules of multi-token prediction",
}


def as_published(config):
    """Words that published models' config.json has and transformers 5 does not write."""
    family = config["model_type"]
    if family == "mpt":
        return {"architectures": ["MPTForCausalLM"]}
    if family == "gpt2":
        return {"n_ctx": config["n_positions"]}
    if family == "gpt_neox":
        return {"rotary_pct": config["rope_parameters"]["partial_rotary_factor"]}
    if family == "deepseek_v3":
        return {"scoring_func": "sigmoid"}
    if family == "falcon" and not config["new_decoder_architecture"]:
        return {"num_kv_heads": 1}
    return {}


def convert(source, folder, out):
    """Writes the model folder as a GGUF file with F32 weights and no vocabulary, which runs on token ids."""
    source = pathlib.Path(source)
    for path in (source, source / "gguf-py"):
        if str(path) not in sys.path:
            sys.path.insert(0, str(path))
    import conversion
    import gguf
    import torch
    logging.disable(logging.WARNING)

    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        copy = pathlib.Path(scratch) / "model"
        shutil.copytree(folder, copy)
        config = json.loads((copy / "config.json").read_text())
        # Gemma 3's converter counts a tokenizer's tokens.
        (copy / "tokenizer.json").write_text(json.dumps(
            {"model": {"vocab": {str(i): i for i in range(config["vocab_size"])}}, "added_tokens": []}))
        hparams = conversion.ModelBase.load_hparams(copy, False) | as_published(config)
        kind = conversion.get_model_class(conversion.get_model_architecture(hparams, conversion.ModelType.TEXT))
        kind.set_vocab = lambda self: self._set_vocab_none()
        kind(copy, gguf.LlamaFileType.ALL_F32, pathlib.Path(out), hparams=hparams).write()
