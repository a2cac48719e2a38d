#!/usr/bin/env python3
"""Writes presets/calibrations/*.json from published tables of measured kernels and collectives.

    scripts/calibrations_from_published.py --published DIR [--out presets/calibrations]

DIR holds gemm_full_h100_a100.csv, kernel_perf.csv and collectives.csv. Needs numpy. Every table written is the
logarithm of measured over analytic time on a grid of shapes; presets/calibrations/README.md says how, and is given
its table of residuals by this script.
"""

import argparse
import csv
import json
import pathlib
import re

import numpy as np

AICONFIGURATOR = "https://github.com/ai-dynamo/aiconfigurator (Apache-2.0), measured system data"
FOLDS = 5
BAND = (0.05, 0.95)  # quantiles of the residuals that bound the 90 % band
FEWEST_OF_A_BAND = 20


# ---- Tables


def read_csv(path):
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def number(text):
    return float(text) if text else float("nan")


# ---- The chips: what the analytic times are made of (presets/hardware has the same figures)

CHIPS = {
    "a100-sxm-80gb": {"bf16": 312e12, "bandwidth": 2039e9, "multiprocessors": 108},
    "h100-sxm": {"bf16": 989e12, "fp8": 1979e12, "bandwidth": 3350e9, "multiprocessors": 132},
}
LAUNCH = 2.5e-6  # shortest kernel of a replayed graph on both


def analytic_time(chip, dtype, flops, nbytes):
    """launch + hypot(compute, memory): smooth where the two meet, as kernels are."""
    return LAUNCH + np.hypot(flops / chip[dtype], nbytes / chip["bandwidth"])


def product_time(chip, dtype, m, n, k):
    operand = 1 if dtype == "fp8" else 2
    return analytic_time(chip, dtype, 2 * m * n * k, operand * (m * k + n * k) + 2 * m * n)


# ---- Gaussian processes: what is known of a shape from the shapes around it


def matern(squared):
    r = np.sqrt(3 * np.maximum(squared, 0))
    return (1 + r) * np.exp(-r)


def squared_distance(a, b):
    """(..., i, f), (..., j, f) -> (..., i, j)"""
    return np.maximum((a * a).sum(-1)[..., :, None] + (b * b).sum(-1)[..., None, :] - 2 * a @ np.swapaxes(b, -1, -2), 0)


# Output tiles of cuBLAS's and CUTLASS's kernels on both chips.
TILES = [(128, 256), (128, 128), (256, 128), (64, 256), (64, 128), (128, 64), (64, 64), (192, 128), (256, 256)]


def wave_features(shapes, multiprocessors):
    """log(work that full waves of a tile do / work that is needed), for each tile."""
    m, n = shapes[:, 0], shapes[:, 1]
    columns = []
    for rows, cols in TILES:
        waves = np.ceil(np.ceil(m / rows) * np.ceil(n / cols) / multiprocessors)
        columns.append(np.log(waves * multiprocessors * rows * cols / (m * n)))
    return np.stack(columns, 1)


class ProductCovariance:
    """Trends of log(measured / analytic) of two products: a smooth trend over log M, log N, log K; a rough one, for the
    kernel that the library happens to choose; and one of products that fill waves alike."""

    TREND, TREND_LENGTHS = 0.2, np.array([1.5, 1.5, 2.4])
    CHOICE, CHOICE_LENGTHS = 0.014, np.array([0.6, 0.55, 2.3])
    WAVES, WAVE_LENGTH, WAVE_SHAPE_LENGTHS = 0.022, 0.8, np.array([10.0, 4.5, 3.7])
    NOISE = 0.003

    def variance(self):
        return self.TREND + self.CHOICE + self.WAVES

    def __call__(self, a, b):
        (xa, wa), (xb, wb) = a, b
        k = self.TREND * matern(squared_distance(xa / self.TREND_LENGTHS, xb / self.TREND_LENGTHS))
        rough = np.ones_like(k)
        for i, length in enumerate(self.CHOICE_LENGTHS):
            rough = rough * np.exp(-np.abs(xa[..., :, None, i] - xb[..., None, :, i]) / length)
        alike = matern(squared_distance(wa / self.WAVE_LENGTH, wb / self.WAVE_LENGTH))
        near = matern(squared_distance(xa / self.WAVE_SHAPE_LENGTHS, xb / self.WAVE_SHAPE_LENGTHS))
        return k + self.CHOICE * rough + self.WAVES * alike * near


CANDIDATES, NEIGHBOURS = 320, 36
CANDIDATE_LENGTHS = np.array([3.0, 2.0, 2.5])  # of log M, log N, log K


def krige(covariance, known, values, wanted, batch=400):
    """Ordinary kriging of each wanted shape from the known shapes that correlate with it most, which are sought among
    the nearest."""
    out = np.empty(len(wanted[0]))
    for begin in range(0, len(out), batch):
        part = tuple(f[begin:begin + batch] for f in wanted)
        apart = squared_distance(part[0] / CANDIDATE_LENGTHS, known[0] / CANDIDATE_LENGTHS)
        index = np.argpartition(apart, CANDIDATES, axis=1)[:, :CANDIDATES]
        to_all = covariance(tuple(f[:, None] for f in part), tuple(f[index] for f in known))[:, 0]
        best = np.argpartition(-to_all, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        index, to_near = np.take_along_axis(index, best, 1), np.take_along_axis(to_all, best, 1)
        near = tuple(f[index] for f in known)
        among = covariance(near, near)
        among[:, range(NEIGHBOURS), range(NEIGHBOURS)] += covariance.NOISE
        y = values[index]
        solved = np.linalg.solve(among, np.stack([y, np.ones_like(y)], -1))
        mean = solved[..., 0].sum(1) / solved[..., 1].sum(1)
        out[begin:begin + batch] = mean + np.einsum("ij,ij->i", to_near, solved[..., 0] - mean[:, None] * solved[..., 1])
    return out


def smooth(x, y, wanted, lengths, variance=0.3, noise=5e-4):
    """Gaussian process with a Matern 3/2 covariance around the median; for tables of up to a hundred rows."""
    k = variance * matern(squared_distance(x / lengths, x / lengths)) + noise * np.eye(len(x))
    middle = np.median(y)
    return middle + variance * matern(squared_distance(wanted / lengths, x / lengths)) @ np.linalg.solve(k, y - middle)


# ---- Bands: how far measured times lie from those predicted without them


def bands(predicted, residual, edges):
    """Quantiles of log(measured / predicted) by predicted time; edges in seconds. Classes of few rows join the next."""
    out, begin = [], 0.0
    for end in [*edges, np.inf]:
        inside = residual[(predicted >= begin) & (predicted < end)]
        after = np.count_nonzero(predicted >= end)
        if len(inside) < FEWEST_OF_A_BAND and after or 0 < after < FEWEST_OF_A_BAND:
            continue
        # The share that lies outside must be 10 % of rows to come: with few rows the outermost are the band.
        shift = 1 / (len(inside) + 1)
        q = np.quantile(inside, [max(BAND[0] - shift, 0), min(BAND[1] + shift, 1)])
        band = {"below_us": round(end * 1e6, 3)} if after else {}
        out.append({**band, "low": round(float(np.expm1(q[0])), 4), "high": round(float(np.expm1(q[1])), 4)})
        begin = end
        if not after:
            break
    return out


def inside_share(predicted, residual, edges, rng):
    """Share of rows inside bands that the other half of the rows made."""
    order = rng.permutation(len(residual))
    hits = []
    for mine, other in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        table = bands(predicted[other], residual[other], edges)
        for t, r in zip(predicted[mine], residual[mine]):
            band = next(b for b in table if t * 1e6 < b.get("below_us", np.inf))
            hits.append(np.log1p(band["low"]) <= r <= np.log1p(band["high"]))
    return float(np.mean(hits))


def error_summary(residual):
    """Median, mean and 90th percentile of |predicted / measured - 1|; bias is the median with its sign."""
    error = np.expm1(-residual)
    size = np.abs(error)
    return {"rows": len(residual), "median": round(float(np.median(size)), 4), "mean": round(float(size.mean()), 4),
            "p90": round(float(np.quantile(size, 0.9)), 4), "bias": round(float(np.median(error)), 4)}


class Report:
    """What README.md's table is made of: the errors of rows held out."""

    def __init__(self):
        self.rows, self.families = [], {}

    def add(self, hardware, name, predicted, residual, edges, rng, family=None):
        summary = error_summary(residual)
        if len(residual) >= FEWEST_OF_A_BAND:
            summary["inside_band"] = round(inside_share(predicted, residual, edges, rng), 3)
        self.rows.append((hardware, name, summary))
        if family:
            self.families.setdefault(family, []).append(residual)
        return summary

    def note(self, hardware, name, residual):
        self.rows.append((hardware, name, error_summary(residual)))

    def totals(self):
        return [("all", family, error_summary(np.concatenate(parts))) for family, parts in self.families.items()]


# ---- Grids as they are written: hundredths of a natural logarithm, steps along the last axis


def steps(values):
    """[..., last axis] -> one line a run along the last axis: the first value, then the change to each next one."""
    rounded = np.round(100 * values.reshape(-1, values.shape[-1])).astype(int)
    return [[int(row[0]), *map(int, np.diff(row))] for row in rounded]


def axis(values):
    return [int(v) if float(v).is_integer() else float(v) for v in values]


# ---- Matrix products

PRODUCT_EDGES = [8e-6, 16e-6, 64e-6, 512e-6]


def product_inputs(chip, shapes):
    return np.log(shapes), wave_features(shapes, chip["multiprocessors"])


def product_surface(chip, dtype, shapes, seconds, rng, prior=None):
    """Values on the grid of all M, N, K that occur, and the residuals of rows left out in turn. `prior`: of the same
    shapes, log ratios already known from another software on the chip (a function)."""
    covariance = ProductCovariance()
    known = product_inputs(chip, shapes)
    ideal = product_time(chip, dtype, *shapes.T)
    y = np.log(seconds / ideal) - (prior(shapes) if prior else 0)
    held_out = np.empty(len(y))
    fold = rng.permutation(len(y)) % FOLDS
    for f in range(FOLDS):
        rest = fold != f
        held_out[~rest] = krige(covariance, tuple(x[rest] for x in known), y[rest], tuple(x[~rest] for x in known))
    axes = [np.unique(shapes[:, i]) for i in (1, 2, 0)]  # N, K, M: runs are along M
    n, k, m = (a.ravel() for a in np.meshgrid(*axes, indexing="ij"))
    grid = np.stack([m, n, k], 1)
    surface = krige(covariance, known, y, product_inputs(chip, grid)) + (prior(grid) if prior else 0)
    predicted = ideal * np.exp(held_out + (prior(shapes) if prior else 0))
    return axes, surface.reshape([len(a) for a in axes]), predicted, np.log(seconds / predicted)


def interpolator(axes, surface):
    """Multilinear in logarithms, held at the edges: what the program does."""
    logs = [np.log(a) for a in axes]

    def at(shapes):
        n_k_m = np.log(shapes[:, [1, 2, 0]])
        index, weight = [], []
        for i, nodes in enumerate(logs):
            x = np.clip(n_k_m[:, i], nodes[0], nodes[-1])
            j = np.clip(np.searchsorted(nodes, x, side="right") - 1, 0, len(nodes) - 2)
            index.append(j)
            weight.append((x - nodes[j]) / (nodes[j + 1] - nodes[j]))
        total = 0
        for corner in range(8):
            w, at_corner = 1, []
            for i in range(3):
                up = corner >> i & 1
                w = w * (weight[i] if up else 1 - weight[i])
                at_corner.append(index[i] + up)
            total = total + w * surface[tuple(at_corner)]
        return total

    return at


def between_nodes(chip, dtype, shapes, seconds, rng):
    """Residuals of shapes whose N or K is on no node: each of some planes is left out of the grid."""
    out = []
    for column in (1, 2):
        values = np.unique(shapes[:, column])
        for value in values[3:-2:4]:
            rest = shapes[:, column] != value
            chosen = rng.permutation(np.flatnonzero(~rest))[:60]
            known = product_inputs(chip, shapes[rest])
            y = np.log(seconds[rest] / product_time(chip, dtype, *shapes[rest].T))
            above = values[np.searchsorted(values, value) + 1]
            below = values[np.searchsorted(values, value) - 1]
            parts = []
            for node in (below, above):
                moved = shapes[chosen].copy()
                moved[:, column] = node
                parts.append(krige(ProductCovariance(), known, y, product_inputs(chip, moved)))
            t = np.log(value / below) / np.log(above / below)
            value_at = parts[0] * (1 - t) + parts[1] * t
            out.append(np.log(seconds[chosen] / product_time(chip, dtype, *shapes[chosen].T)) - value_at)
    return np.concatenate(out)


def product_tables(directory, hardware, gpu, rng, report):
    series = {}
    for row in read_csv(directory / "gemm_full_h100_a100.csv"):
        if row["gpu"] == gpu:
            key = (row["framework"], "bf16" if row["dtype"] == "bfloat16" else row["dtype"])
            series.setdefault(key, []).append([float(row[c]) for c in ("m", "n", "k")] + [float(row["latency_ms"]) / 1e3])
    tables, prior, chip = [], None, CHIPS[hardware]
    for (software, dtype), rows in sorted(series.items(), key=lambda s: -len(s[1])):
        data = np.array(rows)
        shapes, seconds = data[:, :3], data[:, 3]
        same_chip = prior.get(dtype) if prior else None
        axes, surface, predicted, residual = product_surface(chip, dtype, shapes, seconds, rng, same_chip)
        between = between_nodes(chip, dtype, shapes, seconds, rng)
        wider = float(np.quantile(np.abs(between), 0.9) / np.quantile(np.abs(residual), 0.9))
        if same_chip:
            other = np.log(seconds / product_time(chip, dtype, *shapes.T)) - same_chip(shapes)
            report.note(hardware, f"matmul {dtype}: {software} from the other software's table alone", other)
        prior = {**(prior or {}), dtype: interpolator(axes, surface)}
        summary = report.add(hardware, f"matmul {dtype}: {software}", predicted, residual, PRODUCT_EDGES, rng,
                             "matrix products")
        report.note(hardware, f"matmul {dtype}: {software}, N or K on no node", between)
        tables.append({"kernel": "matmul", "software": software, "dtype": dtype,
                       "source": AICONFIGURATOR, "residual": summary,
                       "between_nodes_factor": round(max(wider, 1.0), 2),
                       "bands": bands(predicted, residual, PRODUCT_EDGES),
                       "axes": {"n": axis(axes[0]), "k": axis(axes[1]), "m": axis(axes[2])},
                       "log_ratio_steps": steps(surface)})
    return tables


# ---- Attention

ATTENTION_EDGES = [40e-6, 400e-6]


def leave_one_out(x, y, lengths):
    out = np.empty(len(y))
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        out[i] = smooth(x[rest], y[rest], x[i:i + 1], lengths)[0]
    return out


def attention_table(hardware, kernel, software, dtype, source, names, x, seconds, ideal, lengths, rng, report,
                    suspect=False, edges=ATTENTION_EDGES, nodes=None):
    """x: base-2 logarithms of the axes' values."""
    y = np.log(seconds / ideal)
    predicted = ideal * np.exp(leave_one_out(x, y, lengths))
    residual = np.log(seconds / predicted)
    axes = nodes or [np.unique(x[:, i]) for i in range(x.shape[1])]
    grid = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], 1)
    surface = smooth(x, y, grid, lengths).reshape([len(a) for a in axes])
    summary = report.add(hardware, f"{kernel} {dtype}: {software}" + (" (suspect)" if suspect else ""), predicted, residual,
                         edges, rng, "attention")
    table = {"kernel": kernel, "software": software, "dtype": dtype, "source": source}
    if suspect:
        table["only_where_named"] = True
    return {**table, "residual": summary, "bands": bands(predicted, residual, edges),
            "axes": {name: axis(np.round(2.0 ** a, 6)) for name, a in zip(names, axes)},
            "log_ratio_steps": steps(surface)}


def served_attention_tables(rows, hardware, gpu, rng, report):
    """Prefill and decode of serving engines: bf16, head size 128."""
    chip, series = CHIPS[hardware], {}
    for row in rows:
        if row["gpu"] == gpu and row["kernel"] in ("attention prefill", "attention decode"):
            suspect = row["notes"].startswith("SUSPECT")
            series.setdefault((row["kernel"], row["library"], suspect), []).append(row)
    tables = []
    # The program takes the first where no software is named: FlashAttention, which vLLM calls.
    for (kernel, software, suspect), part in sorted(series.items(), key=lambda s: (s[0][0], s[0][2], "VLLM" not in s[0][1])):
        batch, heads, kv_heads, size, length, ms = (np.array([number(row[c]) for row in part]) for c in
                                                    ("batch", "heads", "kv_heads", "head_dim", "seq_kv", "latency_ms"))
        group = heads / kv_heads
        if kernel == "attention prefill":
            flops = 2 * batch * heads * length**2 * size
            ideal = analytic_time(chip, "bf16", flops, 4 * batch * length * size * (heads + kv_heads))
            names, x = ("heads", "length", "group"), np.log2(np.stack([batch * heads, length, group], 1))
            lengths = np.array([4.0, 2.0, 4.0])
        else:
            ideal = analytic_time(chip, "bf16", 4 * batch * heads * length * size, 4 * batch * kv_heads * length * size)
            names, x = ("kv_heads", "length", "group"), np.log2(np.stack([batch * kv_heads, length, group], 1))
            lengths = np.array([4.0, 4.0, 4.0])
        tables.append(attention_table(hardware, kernel.replace(" ", "_"), software, "bf16", AICONFIGURATOR, names, x,
                                      ms / 1e3, ideal, lengths, rng, report, suspect))
    return tables


PASS_FLOPS = {"fwd": 1.0, "bwd": 2.5, "fwd+bwd": 3.5}  # of the forward's; FlashAttention's convention
PASS_NAME = {"fwd": "attention_forward", "bwd": "attention_backward", "fwd+bwd": "attention_forward_backward"}


def charted_attention_tables(rows, hardware, gpus, rng, report):
    """Training attention of the FlashAttention papers' charts: 16k tokens, heads x size = 2048, no grouping."""
    chip, series = CHIPS[hardware], {}
    for row in rows:
        if row["gpu"] in gpus and row["kernel"] == "attention" and row["batch"]:
            dtype = "fp8" if row["dtype"] == "fp8" else "bf16"
            series.setdefault((row["library"], row["pass"], dtype), []).append(row)
    tables = []
    newest_first = sorted(series.items(), key=lambda s: s[0][0].replace("FlashAttention", "~"), reverse=True)
    for (software, direction, dtype), part in newest_first:
        if len({(row["head_dim"], row["seq_q"], row["causal"]) for row in part}) < 3:
            continue
        batch, heads, size, length, rate = (np.array([number(row[c]) for row in part]) for c in
                                            ("batch", "heads", "head_dim", "seq_q", "tflops"))
        causal = np.array([2.0 if row["causal"] == "y" else 1.0 for row in part])
        flops = 4 * batch * heads * length**2 * size / causal * PASS_FLOPS[direction]
        # Four tensors once forward, eight backward.
        nbytes = 2 * batch * heads * length * size * {"fwd": 4, "bwd": 8, "fwd+bwd": 12}[direction]
        ideal = analytic_time(chip, dtype, flops, nbytes)
        x = np.log2(np.stack([size, length, causal], 1))
        sources = sorted({row["source"] for row in part})
        # Each head size has its own kernel, so that axis has its values alone.
        tables.append(attention_table(hardware, PASS_NAME[direction], software, dtype, "; ".join(sources),
                                      ("head_dim", "length", "causal"), x, flops / rate / 1e12, ideal,
                                      np.array([3.0, 5.0, 2.0]), rng, report, edges=[],
                                      nodes=[np.unique(x[:, 0]), np.arange(9, 15, dtype=float), np.unique(x[:, 2])]))
    return tables


# ---- Collectives: a + k(n) S / B + c sqrt(k(n) S), then what measurements say of it along S


def bus_factor(operation, ranks):
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return 1.0 if operation == "send_receive" else (ranks - 1) / ranks


def curve_time(parameters, factor, nbytes):
    a, b, c = parameters
    moved = factor * nbytes
    return a + moved * b + c * np.sqrt(moved)


# GB/s of a device's links in one direction, and how much less an all-reduce sends where switches add up (NVLink SHARP).
LINKS = {"a100": (300, 1), "h100": (450, 2), "h200": (450, 2), "b200": (900, 2)}


def most_of_link(hardware, operation):
    """Bytes a second that no curve passes; 0: not known."""
    link, reduced = LINKS.get(hardware.split("-")[0], (0, 1))
    return link * 1e9 * (reduced if operation == "all_reduce" else 1)


def fit_curve(nbytes, seconds, factor, most=0):
    """a, 1/B, c > 0 of least summed |log error|, by damped Gauss-Newton on their logarithms. B is at most `most`: where
    all messages are small, nothing else tells it from infinity."""
    moved = factor * nbytes
    least = -np.log(most) if most > 0 else -np.inf
    best = None
    rate = np.max(moved / seconds)
    for start in ([seconds.min(), 1 / rate, 5e-9], [0.8 * seconds.min(), 0.5 / rate, 1e-8], [seconds.min(), 2 / rate, 1e-9]):
        p, damping = np.log(start), 1e-2
        p[1] = max(p[1], least)
        loss = np.abs(np.log(seconds / curve_time(np.exp(p), factor, nbytes))).sum()
        for _ in range(60):
            e = np.exp(p)
            model = curve_time(e, factor, nbytes)
            error = np.log(seconds / model)
            weight = 1 / np.maximum(np.abs(error), 0.01)
            jacobian = np.stack([e[0] / model, e[1] * moved / model, e[2] * np.sqrt(moved) / model], 1)
            normal = jacobian.T @ (jacobian * weight[:, None]) + damping * np.eye(3) * len(seconds)
            trial = p + np.clip(np.linalg.solve(normal, jacobian.T @ (weight * error)), -1, 1)
            trial[1] = max(trial[1], least)
            trial_loss = np.abs(np.log(seconds / curve_time(np.exp(trial), factor, nbytes))).sum()
            if trial_loss < loss:
                p, loss, damping = trial, trial_loss, max(damping / 3, 1e-6)
            else:
                damping *= 4
            if damping > 1e4:
                break
        if best is None or loss < best[0]:
            best = (loss, np.exp(p))
    return best[1]


CORRECTION_VARIANCE, CORRECTION_NOISE, CORRECTION_OCTAVES = 0.01, 6e-4, 3.0


def correction(known, y, wanted):
    """Trend of log(measured / curve) along log2 S: rough, for a switch of protocol is a step."""
    k = CORRECTION_VARIANCE * np.exp(-np.abs(known[:, None] - known) / CORRECTION_OCTAVES)
    across = CORRECTION_VARIANCE * np.exp(-np.abs(wanted[:, None] - known) / CORRECTION_OCTAVES)
    return across @ np.linalg.solve(k + CORRECTION_NOISE * np.eye(len(known)), y)


OPERATIONS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
              "alltoall": "all_to_all", "sendrecv": "send_receive"}
FEWEST_POINTS = 5  # of a curve with three parameters


def collective_series(rows, gpus):
    series = {}
    for row in rows:
        operation = OPERATIONS.get(row["collective"])
        if row["gpu"] not in gpus or not operation or not row["num_gpus"] or not row["message_bytes"]:
            continue
        ranks, nbytes = int(row["num_gpus"]), float(row["message_bytes"])
        rate = number(row["busbw_gbps"]) * 1e9
        seconds = number(row["time_us"]) / 1e6 if row["time_us"] else bus_factor(operation, ranks) * nbytes / rate
        key = (row["library"], operation, int(row["num_nodes"] or 1), ranks)
        series.setdefault(key, (row["source"], []))[1].append((nbytes, seconds))
    return series


def first_choice_first(key):
    """NCCL alone before what wraps it; the program takes the first where no software is named."""
    software, operation, nodes, ranks = key
    return (not re.fullmatch(r"NCCL \d[\d.]*", software), software, operation, nodes, ranks)


class CollectiveCurve:
    """A time over message sizes: parameters, and corrections at sizes."""

    def __init__(self, nbytes, seconds, factor, most, base=None, base_sizes=()):
        """From points; with `base`, a curve known already (another chip's on the same links, or other group sizes'),
        the points say how far that is off."""
        self.factor = factor
        sizes = np.unique(np.concatenate([np.round(np.log2(nbytes)), base_sizes]))
        if base:
            times = base(2.0**sizes) * np.exp(correction(np.log2(nbytes), np.log(seconds / base(nbytes)), sizes))
            self.parameters = fit_curve(2.0**sizes, times, factor, most)
            values = np.log(times / curve_time(self.parameters, factor, 2.0**sizes))
        else:
            self.parameters = fit_curve(nbytes, seconds, factor, most)
            y = np.log(seconds / curve_time(self.parameters, factor, nbytes))
            values = correction(np.log2(nbytes), y, sizes)
        self.sizes, self.values = sizes, values

    def __call__(self, nbytes):
        return curve_time(self.parameters, self.factor, nbytes) * np.exp(np.interp(np.log2(nbytes), self.sizes, self.values))


def between_groups(key, curves):
    """Interpolated between the curves of the next smaller and larger groups of the same software; None without both."""
    software, operation, nodes, ranks = key
    sizes = [k[3] for k in curves if k[:3] == key[:3]]
    if not any(r < ranks for r in sizes) or not any(r > ranks for r in sizes):
        return None
    low, high = max(r for r in sizes if r < ranks), min(r for r in sizes if r > ranks)
    share = np.log(ranks / low) / np.log(high / low)
    below, above = curves[(*key[:3], low)], curves[(*key[:3], high)]
    return lambda nbytes: np.exp((1 - share) * np.log(below(nbytes)) + share * np.log(above(nbytes))), below.sizes


def collective_curves(rows, hardware, gpus, rng, report, same_links=None):
    """Written curves, and the curves themselves by (software, operation, nodes, ranks). `same_links`: those of a chip
    with the same links."""
    series = {k: (source, np.array(sorted(points))) for k, (source, points) in collective_series(rows, gpus).items()}
    enough = sorted((k for k, (_, data) in series.items() if len(data) >= FEWEST_POINTS), key=first_choice_first)
    few = sorted((k for k in series if k not in enough), key=first_choice_first)
    curves, by_software = {}, {}
    for key in enough:
        nbytes, seconds = series[key][1].T
        factor, most = bus_factor(key[1], key[3]), most_of_link(hardware, key[1])
        other = (same_links or {}).get(key)
        base = (other, other.sizes) if other else (None, ())
        predicted = np.empty(len(nbytes))
        for i in range(len(nbytes)):
            rest = np.arange(len(nbytes)) != i
            predicted[i] = CollectiveCurve(nbytes[rest], seconds[rest], factor, most, *base)(nbytes[i:i + 1])[0]
        curves[key] = CollectiveCurve(nbytes, seconds, factor, most, *base)
        by_software.setdefault(key[:2], []).append((predicted, np.log(seconds / predicted)))
    pooled, everything = {}, np.concatenate([r for parts in by_software.values() for _, r in parts])
    for (software, operation), parts in by_software.items():
        predicted, residual = (np.concatenate(q) for q in zip(*parts))
        summary = report.add(hardware, f"{operation}: {software}", predicted, residual, [], rng, "collectives")
        pooled[(software, operation)] = (summary, bands(predicted, residual, []))
    written = []
    for key in enough + few:
        software, operation, nodes, ranks = key
        source, data = series[key]
        nbytes, seconds = data.T
        factor, most = bus_factor(operation, ranks), most_of_link(hardware, operation)
        if key in few:
            base = between_groups(key, {k: curves[k] for k in enough})
            if base:
                curves[key] = CollectiveCurve(nbytes, seconds, factor, most, *base)
        if key in curves:
            a, b, c = curves[key].parameters
            sizes, values = 2.0 ** curves[key].sizes, curves[key].values
        else:  # the latency of the smallest message, and the rate of the largest beyond it
            a = seconds.min() if len(data) > 1 else 0.0
            b = max(seconds[-1] - a, 0.1 * seconds[-1]) / (factor * nbytes[-1])
            c, sizes, values = 0.0, nbytes[-1:], np.zeros(1)
        summary, band = pooled.get(key[:2], (None, bands(everything, everything, [])))
        written.append({"operation": operation, "software": software, "nodes": nodes, "ranks": ranks, "source": source,
                        **({"residual": summary} if summary else {}), "bands": band,
                        "latency_us": round(a * 1e6, 3), "bus_gb_per_s": round(1e-9 / b, 2),
                        "ramp_us_per_sqrt_mb": round(c * 1e9, 3), "bytes": axis(sizes), "log_ratio_steps": steps(values)})
    return written, curves


# NCCL 2.29.2 on eight B200 behind NVLink switches, fp16, 22 sizes from 512 B to 1 GiB: constants fitted to the tables
# of aiconfigurator, with the mean error of each curve. The rows themselves are not among the published tables here.
B200_CURVES = {
    "all_reduce": {2: (10.1, 595, 3.7, .052), 4: (15.0, 738, 4.9, .079), 8: (25.1, 865, 7.3, .057)},
    "all_gather": {2: (8.7, 513, 4.3, .043), 4: (11.1, 699, 4.8, .095), 8: (16.7, 754, 5.6, .105)},
    "reduce_scatter": {2: (9.0, 458, 3.6, .040), 4: (11.5, 650, 4.2, .070), 8: (16.2, 740, 5.3, .085)},
    "all_to_all": {2: (9.3, 415, 6.6, .10), 4: (10.2, 586, 4.9, .07), 8: (11.9, 689, 5.5, .06)},
}
LAPLACE_P90_OF_MEAN = 2.303  # of errors that fall off exponentially


def b200_curves():
    return [{"operation": operation, "software": "NCCL 2.29.2", "nodes": 1, "ranks": ranks,
             "source": AICONFIGURATOR + ", fitted constants", "latency_us": a, "bus_gb_per_s": b, "ramp_us_per_sqrt_mb": c,
             "bytes": [1048576], "log_ratio_steps": [[0]],
             "bands": [{"low": round(1 / (1 + LAPLACE_P90_OF_MEAN * e) - 1, 4), "high": round(LAPLACE_P90_OF_MEAN * e, 4)}]}
            for operation, by_ranks in B200_CURVES.items() for ranks, (a, b, c, e) in by_ranks.items()]


SAME_CHIP = {"a100-sxm-40gb": "a100-sxm-80gb", "a100-pcie-40gb": "a100-sxm-80gb", "a100-pcie-80gb": "a100-sxm-80gb",
             "h100-pcie": "h100-sxm", "h100-nvl": "h100-sxm", "h800-sxm": "h100-sxm"}


# ---- Files


def write_json(path, calibration):
    """One line a run of a grid and one a small object: diffs stay readable."""

    def value(item, indent):
        pad = "  " * indent
        if isinstance(item, dict) and any(isinstance(v, (dict, list)) for v in item.values()):
            return "{\n" + ",\n".join(f"{pad}  {json.dumps(k)}: {value(v, indent + 1)}" for k, v in item.items()) + f"\n{pad}}}"
        if isinstance(item, list) and item and isinstance(item[0], (dict, list)):
            return "[\n" + ",\n".join(pad + "  " + value(v, indent + 1) for v in item) + f"\n{pad}]"
        if isinstance(item, list):
            return "[" + ",".join(json.dumps(v) for v in item) + "]"
        return json.dumps(item)

    path.write_text(value(calibration, 0) + "\n", encoding="utf-8")


def write_residuals(readme, report):
    begin, end = "<!-- residuals -->\n", "<!-- /residuals -->"
    lines = ["| hardware | table | rows | median | mean | 90th percentile | bias | inside the 90 % band |",
             "|---|---|--:|--:|--:|--:|--:|--:|"]
    for hardware, name, s in report.totals() + report.rows:
        share = f"{100 * s['inside_band']:.0f} %" if "inside_band" in s else ""
        lines.append(f"| {hardware} | {name} | {s['rows']} | {100 * s['median']:.1f} % | {100 * s['mean']:.1f} % | "
                     f"{100 * s['p90']:.1f} % | {100 * s['bias']:+.1f} % | {share} |")
    text = readme.read_text(encoding="utf-8")
    head, rest = text.split(begin)
    readme.write_text(head + begin + "\n" + "\n".join(lines) + "\n\n" + end + rest.split(end)[1], encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", type=pathlib.Path, required=True, help="folder of the published tables")
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "presets" / "calibrations")
    arguments = parser.parse_args()
    kernels = read_csv(arguments.published / "kernel_perf.csv")
    collectives = read_csv(arguments.published / "collectives.csv")
    report, h200_report = Report(), Report()
    plan = {
        "a100-sxm-80gb": ("A100-SXM4-80GB", {"A100-80GB-SXM", "A100-SXM"},
                          {"A100-SXM4-80GB", "A100-SXM (NVSwitch)", "A100-80GB-SXM", "A100-SXM"}),
        "h100-sxm": ("H100-80GB-SXM", {"H100-80GB-SXM5", "H100-SXM", "H100"}, {"H100-80GB-SXM", "H100-SXM"}),
    }
    seed = np.random.default_rng
    h200_written, nvlink4 = collective_curves(collectives, "h200-sxm", {"H200-SXM", "H200-141GB-SXM"}, seed(0), h200_report)
    for hardware, (gpu, charted, linked) in plan.items():
        tables = product_tables(arguments.published, hardware, gpu, seed(0), report)
        tables += served_attention_tables(kernels, hardware, gpu, seed(0), report)
        tables += charted_attention_tables(kernels, hardware, charted, seed(0), report)
        same_links = nvlink4 if hardware == "h100-sxm" else None
        curves, _ = collective_curves(collectives, hardware, linked, seed(0), report, same_links)
        write_json(arguments.out / f"{hardware}.json",
                   {"hardware": hardware, "launch_us": LAUNCH * 1e6, "source": "published measurements; each table says whose",
                    "kernels": tables, "collectives": curves})
        print(hardware, "written", flush=True)
    report.rows += h200_report.rows
    for family, parts in h200_report.families.items():
        report.families[family] += parts
    write_json(arguments.out / "h200-sxm.json",
               {"hardware": "h200-sxm", "kernels_of": "h100-sxm",
                "source": "kernels: those of H100, the same chip with faster memory; collectives: published measurements",
                "collectives": h200_written})
    for hardware, chip in SAME_CHIP.items():
        write_json(arguments.out / f"{hardware}.json",
                   {"hardware": hardware, "kernels_of": chip, "collectives": [],
                    "source": f"kernels: those of {chip}, the same chip; its other clock, memory and links are the hardware preset's"})
    write_json(arguments.out / "b200-sxm.json",
               {"hardware": "b200-sxm", "launch_us": 1.7, "source": AICONFIGURATOR + ", fitted constants; no kernels",
                "kernels": [], "collectives": b200_curves()})
    write_residuals(arguments.out / "README.md", report)


if __name__ == "__main__":
    main()
