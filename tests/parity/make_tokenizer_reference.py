#!/usr/bin/env python3
"""Records what Hugging Face's tokenizers and llama.cpp make of mixed text, for tests/runtime/tokenizer_test.cpp.

    pip install tokenizers==0.23.3 gguf llama-cpp-python==0.3.36
    python3 make_tokenizer_reference.py --gguf smollm2-135m-instruct.gguf --out ../runtime/data

Writes, below --out:
  tokenizers/NAME/tokenizer.json  small byte-level BPE tokenizers, trained here on the texts below, with the pipelines of
                                  GPT-2, SmolLM, Llama 3 and Qwen2
  tokenizer_cases.json            made_with: versions; texts; for each tokenizer the ids of each text and, for the small
                                  ones, the byte lengths of the pre-tokenizer's pieces. The ids of smollm2 are Hugging
                                  Face's for the vocabulary and merges of the GGUF file, and llama.cpp's: the script fails
                                  where the two differ.
"""
import argparse
import json
import pathlib
import random
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

TEXTS = [
    "", " ", "  ", "\n", "\n\n\n", "\t\t x", " \n \n ", "   leading", "trailing   ", "a  b   c    d",
    "Hello, world! It's 2024; we've 1,234,567.89 reasons, don't we? I'll say they're fine, he'd've known I'm here.",
    "IT'S WE'VE DON'T I'LL THEY'RE HE'D I'M it'ſ 'tis 'S 'rebel 'llama",
    "def f(x: int) -> str:\n    \"\"\"Doc.\"\"\"\n    return f\"{x!r:>10}\" if x else ''\n\n\nclass A:\n\tpass\r\n",
    "#include <vector>\nint main() { std::vector<int> v{1,2,3}; for (auto& x : v) x <<= 2; return v[0] != 4 && !v.empty(); }\n",
    "0 1 12 123 1234 12345 1e-10 0xDEADBEEF 3.14159 ½ ² ٣٤٥ ४५६ Ⅷ 一二三 ①②",
    "a\u00a0b\u2003c\u3000d\u2028e\u0085f\u200bg", "\r\n\r\n  \r\n x\r y",
    "naïve café — “quotes” … €5 £6 ¥7 §8 ±9", "Zażółć gęślą jaźń. Příliš žluťoučký kůň. Ærøskøbing. İstanbul, ığdır.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "עטלף אבק נס דרך מזגן שהתפוצץ כי חם", "نص حكيم له سر قاطع وذو شأن عظيم مكتوب ١٢٣", "זה ‏RTL‎ mixed",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा", "বাংলা ভাষা তে লেখা", "தமிழ் எழுத்து முறை", "ตัวอย่างภาษาไทยไม่มีช่องว่าง",
    "ಕನ್ನಡ ಮಲಯാളം తెలుగు ਗੁਰਮੁਖੀ ગુજરાતી ଓଡ଼ିଆ සිංහල", "ქართული ენა, հայերեն, አማርኛ, ᏣᎳᎩ, ᐃᓄᒃᑎᑐᑦ",
    "ພາສາລາວ ភាសាខ្មែរ မြန်မာဘာသာ བོད་སྐད ᠮᠣᠩᠭᠣᠯ", "日本語のテキスト、カタカナと漢字とひらがな。", "简体中文和繁體中文混合，标点符号。",
    "한국어 텍스트 띄어쓰기 예시입니다", "각 " + unicodedata.normalize("NFD", "각 한글 é ü ñ Å ộ"),
    "e\u0301 a\u0308\u0323 q\u0307\u0323 \u212b \u2126 \uf900 \u0344 \u0958 \u1e9b\u0323",
    "𐌰𐌱𐌲 𓀀𓀁 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 𠀀𠀁 𞤀𞤣𞤤𞤢𞤥",
    "😀😃 👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇫🇷🇯🇵 1️⃣ ❤️ ☃︎ 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "x" * 70, "=" * 40 + "\n" + "-" * 33, " " * 65 + "x",
    "ab" * 40, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>", "<|endoftext|><|endoftext|> a<|endoftext|>b",
    "<|im_start |> <|im_end|", "https://example.org/a?b=c&d=%20e#f user@example.com C:\\dir\\file.txt",
    "{\"key\": [1, 2.5, null, true], \"nested\": {\"a\\n\": \"\\u00e9\"}}", "SELECT * FROM t WHERE a='b' -- c\n;",
    "∀x∈ℝ: ∑ᵢ xᵢ² ≥ 0 ⇒ √2 ≈ 1.414 ∂f/∂x", "\u0000\u0001\u0007\u001b[31mred\u001b[0m\u007f", "\ufeffBOM \ufffd replacement",
]


def random_texts(count):
    """Runs of neighbouring code points, spaces and newlines, from all that Unicode 14 assigns."""
    rng = random.Random(20240607)
    assigned = [c for c in range(0x20, 0x30000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    for _ in range(count):
        text = ""
        for _ in range(rng.randint(1, 12)):
            kind = rng.random()
            if kind < 0.35:
                text += rng.choice([" ", "  ", "\n", "\t", " \n", "'s", "'ll", "1", "23", ".", "...", "_", "\r\n"])
            elif kind < 0.6:
                text += "".join(chr(rng.randint(0x21, 0x7E)) for _ in range(rng.randint(1, 5)))
            else:
                start = rng.randrange(len(assigned) - 4)
                text += "".join(chr(c) for c in assigned[start:start + rng.randint(1, 4)])
        yield text


def pipeline(name):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name in ("gpt2", "smollm"))
    if name == "gpt2":
        return None, [byte_level]
    if name == "smollm":
        return None, [pre_tokenizers.Digits(individual_digits=True), byte_level]
    if name == "llama3":
        return None, [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), byte_level]
    return normalizers.NFC(), [pre_tokenizers.Split(Regex(QWEN2), "isolated"), byte_level]


def small_tokenizer(name, texts):
    normalizer, steps = pipeline(name)
    tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=700, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    if name == "llama3":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|im_start|> $A", special_tokens=[("<|im_start|>", tokenizer.token_to_id("<|im_start|>"))])
    if name == "qwen2":
        tokenizer.add_tokens([AddedToken("quotes", normalized=True), AddedToken("\tpass", lstrip=True, rstrip=True)])
    return tokenizer


def piece_lengths(tokenizer, text):
    normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    # ByteLevel writes each byte as one character.
    return [len(piece) for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)]


def tokenizer_of_gguf(path):
    import gguf

    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(pipeline("smollm")[1])
    tokenizer.decoder = decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"].contents()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t, kind in zip(tokens, types) if kind == 3])
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--random", type=int, default=60, help="random texts to add")
    arguments = parser.parse_args()

    import llama_cpp

    texts = TEXTS + list(random_texts(arguments.random))
    cases = {"made_with": {"tokenizers": tokenizers.__version__, "llama_cpp_python": llama_cpp.__version__},
             "texts": texts, "ids": {}, "pieces": {}}
    for name in ("gpt2", "smollm", "llama3", "qwen2"):
        tokenizer = small_tokenizer(name, texts[:len(TEXTS)])
        folder = arguments.out / "tokenizers" / name
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        cases["ids"][name] = [tokenizer.encode(text).ids for text in texts]
        cases["pieces"][name] = [piece_lengths(tokenizer, text) for text in texts]

    hugging_face = tokenizer_of_gguf(arguments.gguf)
    llama = llama_cpp.Llama(arguments.gguf, vocab_only=True, verbose=False)
    cases["ids"]["smollm2"] = [hugging_face.encode(text).ids for text in texts]
    differ = 0
    for text, ids in zip(texts, cases["ids"]["smollm2"]):
        theirs = llama.tokenize(text.encode(), add_bos=False, special=True)
        if theirs != ids:
            differ += 1
            print(f"llama.cpp differs on {text!r}: {theirs} against {ids}", file=sys.stderr)
    if differ:
        sys.exit(f"{differ} texts differ between llama.cpp and Hugging Face")
    (arguments.out / "tokenizer_cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")
    print(f"{len(texts)} texts, 5 tokenizers")


if __name__ == "__main__":
    main()
