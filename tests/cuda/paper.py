"""What steps and tokens take on paper: the program's own operations, each by what bounds its kernel.

Read by tests/cuda/budget. Bytes, FLOPs and the number of executions are those of `ridgepoint predict`; matrix products take what
the program predicts of cuBLASLt, from published tables; every other kernel takes the longest of its bytes, its instructions and
its tensor cores' work, at REACH of each, and a launch. Nothing here was measured on a GPU by this program.
"""
import json
import re
import subprocess
import sys

GPUS = ["h100-sxm", "h200-sxm"]
REACH = 0.85  # of a limit that a kernel is to reach: the goal of memory-bound kernels; copies reach 0.90 of an H200's 4.8 TB/s
# Of a multiprocessor of compute capability 9.0, a clock (CUDA C++ programming guide, throughput of arithmetic instructions; tensor
# cores: 989 TFLOP/s over 132 multiprocessors at the 1.83 GHz behind the datasheet's peaks).
ISSUED, EXPONENTIALS, TENSOR_FLOPS = 128, 16, 4096
# A launch whose weights are loaded before its forerunner ends (programmatic dependent launch): estimated.
OVERLAPPED_LAUNCH_S = 1e-6

# Name, flags, goal of MFU as 6N and causal attention over the datasheet's peak, tokens a sequence.
STEPS = [
    ("GPT-2 124M, 16 x 32 x 1024", ["--model", "gpt2-124m", "--micro-batch", 32, "--global-batch", 512], 0.45, 1024),
    ("GPT-2 1.5B, 32 x 8 x 1024", ["--model", "gpt2-1558m", "--micro-batch", 8, "--global-batch", 256], 0.58, 1024),
    ("Llama-2 7B, 16 x 4 x 2048", ["--model", "llama-2-7b", "--micro-batch", 4, "--global-batch", 64], 0.62, 2048),
]
TOKENS = [
    ("Llama-3.2 1B", ["--model", "llama-3.2-1b"], 0.80, "bf16"),
    ("Llama-3.1 8B", ["--model", "llama-3.1-8b"], 0.80, "bf16"),
    ("Llama-3.1 8B, int8", ["--model", "llama-3.1-8b", "--weights-dtype", "int8"], 0.80, "int8"),
    ("Llama-3.1 8B, int4", ["--model", "llama-3.1-8b", "--weights-dtype", "int4", "--weights-group", 128], 0.80, "int4"),
]
PRODUCTS = {"matmul", "matmul_backward_input", "matmul_backward_weight"}
GROUPS = [  # what the tables add up; the first that fits
    ("head products", lambda row: row["kind"] in PRODUCTS and row["id"].startswith("head.")),
    ("layer products", lambda row: row["kind"] in PRODUCTS),
    ("attention", lambda row: row["kind"].startswith("attention")),
    ("cross-entropy or sampling", lambda row: row["kind"] in ("cross_entropy", "sample")),
    ("norms", lambda row: "norm" in row["kind"] and row["kind"] != "squared_norm"),
    ("embedding", lambda row: row["kind"].startswith("embedding")),
    ("optimizer, gradients' norm, zeroing", lambda row: row["phase"] == "optimizer"),
    ("activations, rotation, the rest", lambda row: True),
]
# Kinds whose kernel's instructions are counted, by a kernel of tests/cuda/budget, and elements of an execution.
COUNTED = {
    "layernorm_backward": ("LayerNorm backward, up to 2048 columns", lambda s: s["tokens"] * s["hidden"]),
    "rmsnorm_backward": ("RMSNorm backward, up to 4096 columns", lambda s: s["tokens"] * s["hidden"]),
    "embedding_backward": ("embedding backward", lambda s: s["tokens"] * s["hidden"]),
    "cross_entropy": ("cross-entropy", lambda s: 2 * s["tokens"] * s["vocab"]),  # read, then read and written
    "swiglu_backward": ("SwiGLU with weights of rows, backward", lambda s: s["tokens"] * s["intermediate"]),
}


def attention_cycles_a_flop(kernel):
    """Clocks of a multiprocessor for each FLOP of a tile: (tensor cores, issue, exponentials); two warpgroups compute."""
    groups, threads = 2, 128
    flops = sum(2 * int(m[1]) * int(m[2]) * int(m[3]) for op in kernel["body"]
                if (m := re.match(r"HGMMA\.(\d+)x(\d+)x(\d+)", op)))
    exponentials = sum(op.startswith("MUFU.EX2") for op in kernel["body"])
    of_round = (groups * flops / TENSOR_FLOPS, groups * threads * len(kernel["body"]) / ISSUED,
                groups * threads * exponentials / EXPONENTIALS)
    return tuple(cycles / (groups * flops) for cycles in of_round)


def predict(program, hardware, flags):
    command = [program, "predict", "--hardware", hardware, "--dtype", "bf16", *map(str, flags), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 3):  # 3: it does not fit, and is predicted all the same
        sys.exit(f"tests/cuda/budget: {' '.join(map(str, command))}: {done.stderr}")
    return json.loads(done.stdout)


def limits(row, kernels, gpu, shape):
    """Seconds of all executions by (bytes, instructions, tensor cores), at the whole of each limit."""
    bytes_s = row["memory_bytes"] / gpu["bandwidth"]
    rate = gpu["multiprocessors"] * gpu["clock"]
    instructions_s = tensor_s = 0
    if row["kind"] in COUNTED:
        name, elements = COUNTED[row["kind"]]
        kernel = kernels[name]
        if kernel["loop"] and kernel["round"]:
            instructions_s = kernel["loop"] / kernel["round"][0] * elements(shape) * row["count"] / (ISSUED * rate)
    elif row["kind"] in ("attention_flash", "attention_flash_backward"):
        way = "backward" if row["kind"].endswith("backward") else "forward"
        kernel = kernels[f"attention, wgmma, {way}, D {shape['head_dim']}"]
        if kernel["body"]:
            # Tiles on the diagonal are computed whole.
            flops = row["flops"] * (1 + 128 / shape["length"])
            tensor, issue, exponentials = attention_cycles_a_flop(kernel)
            tensor_s, instructions_s = tensor * flops / rate, max(issue, exponentials) * flops / rate
    elif row["kind"] == "matmul" and row["phase"] == "decode":
        kernel = kernels[f"product of one row, {shape['weights']}"]
        if kernel["loop"]:
            weights = row["flops"] / 2
            instructions_s = kernel["loop"] / kernel["round"][0] * weights / (ISSUED * rate)
    return bytes_s, instructions_s, tensor_s


def seconds_of(row, kernels, gpu, shape, launch=None):
    if "fused_into" in row:
        return 0.0
    if row["kind"] in PRODUCTS and row["phase"] != "decode":
        return row["duration_seconds"]
    launches = row["count"] * (gpu["launch"] if launch is None else launch)
    return launches + max(limits(row, kernels, gpu, shape)) / REACH


def gpu_of(report):
    hardware = report["source"]["scenario"]["hardware"]
    peak = hardware["bf16_tflops_dense"] * 1e12
    return {"peak": peak, "bandwidth": hardware["memory_bandwidth_gb_per_s"] * 1e9, "launch": hardware["launch_us"] * 1e-6,
            "multiprocessors": hardware["multiprocessors"], "clock": peak / hardware["multiprocessors"] / TENSOR_FLOPS}


def shape_of(report, **more):
    scenario = report["source"]["scenario"]
    model, workload = scenario["model"], scenario["workload"]
    return {"tokens": workload["micro_batch_size"] * workload["seq_len"], "hidden": model["hidden_size"],
            "vocab": model["vocab_size"], "intermediate": model["intermediate_size"],
            "head_dim": model.get("head_dim", model["hidden_size"] // model["num_attention_heads"]), **more}


def groups_of(rows, seconds):
    found = {}
    for row, s in zip(rows, seconds):
        name = next(name for name, fits in GROUPS if fits(row))
        found[name] = found.get(name, 0) + s
    return found


def table(title, columns):
    """columns: (heading, {line: text}); lines in the order of the first column that has each."""
    lines = list(dict.fromkeys(line for _, cells in columns for line in cells))
    text = [f"| {title} | " + " | ".join(heading for heading, _ in columns) + " |", "|---|" + "--:|" * len(columns)]
    text += [f"| {line} | " + " | ".join(cells.get(line, "") for _, cells in columns) + " |" for line in lines]
    return text


def steps(program, kernels):
    columns = []
    for name, flags, goal, length in STEPS:
        for hardware in GPUS:
            document = predict(program, hardware, ["--task", "train", "--seq-len", length, *flags])
            report, metrics = document["report"], document["metrics"]
            gpu, shape = gpu_of(report), shape_of(report, length=length)
            seconds = [seconds_of(row, kernels, gpu, shape) for row in report["rows"]]
            total = sum(seconds)
            mfu = metrics["mfu_6n_causal_attention"] * metrics["step_time_s"] / total
            cells = {group: f"{s * 1e3:.1f}" for group, s in groups_of(report["rows"], seconds).items()}
            cells |= {"total, ms": f"{total * 1e3:.1f}", "MFU": f"{mfu:.1%}", "goal": f"{goal:.0%}",
                      "what the program predicts, ms": f"{metrics['step_time_s'] * 1e3:.1f}"}
            cells["memory"] = "fits" if metrics["fits"] else f"{metrics['peak_memory_bytes'] / 2**30:.0f} GiB: does not fit"
            columns.append((f"{name}, {hardware[:4].upper()}", cells))
    return table("ms", columns)


def tokens(program, kernels):
    columns = []
    for name, flags, goal, weights in TOKENS:
        for hardware in GPUS:
            document = predict(program, hardware,
                               ["--task", "generate", "--prompt-length", 512, "--max-new-tokens", 64, *flags])
            report, metrics = document["report"], document["metrics"]
            gpu, shape = gpu_of(report), shape_of(report, length=512, weights=weights)
            rows = [row for row in report["rows"] if row["phase"] == "decode"]
            count = next(row["count"] for row in rows if row["kind"] == "sample")
            useful = metrics["mbu"] * metrics["tpot_s"]  # seconds of the bytes that a token must read, at the whole bandwidth
            cells = {}
            seconds = [seconds_of(row, kernels, gpu, shape) / count for row in rows]
            for group, s in groups_of(rows, seconds).items():
                cells[group] = f"{s * 1e6:.0f}"
            total = sum(seconds)
            overlapped = sum(seconds_of(row, kernels, gpu, shape, OVERLAPPED_LAUNCH_S) for row in rows) / count
            launches = sum(row["count"] for row in rows if "fused_into" not in row) / count
            # Norms in their product's read and SwiGLU as its epilogue: five launches of a layer stay.
            folded = {"rmsnorm", "layernorm", "swiglu"}
            fewer = sum(seconds_of(row, kernels, gpu, shape, OVERLAPPED_LAUNCH_S) for row in rows
                        if row["kind"] not in folded) / count
            cells |= {"launches": f"{launches:.0f}", "total, us": f"{total * 1e6:.0f}", "of the bandwidth": f"{useful / total:.0%}",
                      "with launches overlapped, us": f"{overlapped * 1e6:.0f}", "of the bandwidth then": f"{useful / overlapped:.0%}",
                      "and norms and SwiGLU in products, us": f"{fewer * 1e6:.0f}", "of the bandwidth with both": f"{useful / fewer:.0%}",
                      "goal": f"{goal:.0%}", "what the program predicts, us": f"{metrics['tpot_s'] * 1e6:.0f}"}
            columns.append((f"{name}, {hardware[:4].upper()}", cells))
    return table("us", columns)


def own_kernels(program, kernels):
    """Kinds of one layer's step at 7B and 1.5B, an execution each: bytes, FLOPs, what bounds it, and the time."""
    lines = ["| kind | at | bytes | FLOPs | by bytes, us | by instructions, us | by tensor cores, us | bound by | H100, us | H200, us |",
             "|---|---|--:|--:|--:|--:|--:|---|--:|--:|"]
    for name, flags, _, length in STEPS[1:]:
        reports = [predict(program, hardware, ["--task", "train", "--seq-len", length, *flags])["report"] for hardware in GPUS]
        gpus = [gpu_of(report) for report in reports]
        shape = shape_of(reports[0], length=length)
        seen = set()
        for first, second in zip(*(report["rows"] for report in reports)):
            if first["kind"] in seen or first["kind"] in PRODUCTS or "fused_into" in first:
                continue
            seen.add(first["kind"])
            each = [s * 1e6 / first["count"] for s in limits(first, kernels, gpus[0], shape)]
            bound = "launch" if max(each) < gpus[0]["launch"] * 1e6 else ("bytes", "instructions", "tensor cores")[each.index(max(each))]
            times = [seconds_of(row, kernels, gpu, shape) * 1e6 / row["count"] for row, gpu in ((first, gpus[0]), (second, gpus[1]))]
            number = lambda x: f"{x:.1f}" if x else ""
            lines.append(f"| {first['kind']} | {name.split(',')[0]} | {first['memory_bytes'] / first['count']:.3g} "
                         f"| {first['flops'] / first['count']:.3g} | {number(each[0])} | {number(each[1])} | {number(each[2])} | {bound} "
                         f"| {times[0]:.1f} | {times[1]:.1f} |")
    return lines
