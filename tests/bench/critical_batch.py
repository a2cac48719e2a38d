#!/usr/bin/env python3
"""Whether the gradient noise scale that training measures says how large a batch is worth it: steps to one loss at several
batch sizes of a tiny model, beside the noise scale at that loss.

    python3 tests/bench/critical_batch.py [--program build/release/app/ridgepoint] [--loss 2.5] [--batches 2 4 8 16 32]

Trains a model of a preset on text that ships, at each batch with several learning rates, of which the one counts that needs the
fewest steps. A loss is reached when the mean over the last --smooth sequences is there. Steps S and sequences E = S B
follow (S / S_min - 1)(E / E_min - 1) = 1 (McCandlish et al. 2018, arXiv 1812.06162, equation 2.11), which is S = S_min + E_min / B:
both are fitted to the least sum of squared relative errors of S, and the critical batch is E_min / S_min. Beside it the noise
scale as the program tells it (an average over 50 steps or so, the last that it could tell), and from the norms that it tells,
averaged over the last --noise-over sequences, which of small batches are more steps. Steps do not depend on how busy
the machine is.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def steps_to_loss(arguments, batch, rate):
    """Steps of one run, its noise scale and that over its last sequences; None where it does not get there."""
    micro_batch = max(1, batch // 8)  # the further apart the two sizes are, the better known the signal is
    command = [arguments.program, "train", "--model", arguments.model, "--data", arguments.data, "--stream",
               "--seq-len", str(arguments.seq_len), "--micro-batch", str(micro_batch), "--global-batch", str(batch),
               "--measure-noise", "--lr", str(rate), "--lr-schedule", "constant", "--threads", "1",
               "--steps", str(arguments.most_sequences // batch)]
    recent = collections.deque(maxlen=max(1, arguments.smooth // batch))
    norms = collections.deque(maxlen=max(1, arguments.noise_over // batch))
    noise = None
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    reached = None
    for line in run.stdout:
        event = json.loads(line)
        if event["event"] == "error":
            raise SystemExit(event["message"])
        if event["event"] != "step":
            continue
        recent.append(event["loss"] if event["loss"] is not None else float("inf"))
        noise = event.get("noise_scale_sequences", noise)
        if "micro_batch_grad_norm" in event:
            norms.append((event["micro_batch_grad_norm"] ** 2, event["grad_norm"] ** 2))
        if len(recent) == recent.maxlen and sum(recent) / len(recent) <= arguments.loss:
            reached = event["step"], noise, noise_scale(micro_batch, batch, norms)
            break
    run.terminate()
    errors = run.communicate()[1]
    if reached is None and run.returncode not in (0, -15):
        raise SystemExit(errors.strip() or f"{' '.join(command)} failed")
    return reached


def noise_scale(small, large, norms):
    """From means of squared norms at two batch sizes (McCandlish et al. 2018, appendix A.1); None where noise hides the signal."""
    of_small, of_large = (sum(column) / len(norms) for column in zip(*norms))
    signal = (large * of_large - small * of_small) / (large - small)
    variance = (of_small - of_large) / (1 / small - 1 / large)
    return variance / signal if signal > 0 and variance > 0 else None


def fit(runs):
    """S_min and E_min of S = S_min + E_min / B, by least squares of relative errors."""
    # Divided by S: 1 = S_min x + E_min y with x = 1 / S and y = 1 / E.
    points = [(1 / steps, 1 / (steps * batch)) for batch, steps in runs]
    xx, xy, yy = (sum(a * b for a, b in pairs) for pairs in
                  ([(x, x) for x, _ in points], points, [(y, y) for _, y in points]))
    x1, y1 = sum(x for x, _ in points), sum(y for _, y in points)
    determinant = xx * yy - xy * xy
    return (x1 * yy - y1 * xy) / determinant, (y1 * xx - x1 * xy) / determinant


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/app/ridgepoint")
    parser.add_argument("--model", default="tiny-gpt")
    parser.add_argument("--data", default=str(ROOT / "presets" / "lessons"))
    parser.add_argument("--seq-len", type=int, default=32)
    parser.add_argument("--loss", type=float, default=2.5)
    parser.add_argument("--batches", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--rates", type=float, nargs="+", default=[4e-4, 8e-4, 1.6e-3])
    parser.add_argument("--smooth", type=int, default=128, help="sequences that a loss is the mean over")
    parser.add_argument("--noise-over", type=int, default=1024, help="sequences that norms are averaged over")
    parser.add_argument("--most-sequences", type=int, default=8000, help="after which a run is given up")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, a thread each")
    arguments = parser.parse_args()

    best = {}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        asked = {pool.submit(steps_to_loss, arguments, batch, rate): (batch, rate)
                 for batch in sorted(arguments.batches, reverse=True) for rate in arguments.rates}
        for done in concurrent.futures.as_completed(asked):
            batch, rate = asked[done]
            if done.result() and (batch not in best or done.result()[0] < best[batch][0]):
                best[batch] = (*done.result(), rate)
    if len(best) < 2:
        raise SystemExit(f"fewer than two batch sizes reached a loss of {arguments.loss}")

    least_steps, least_sequences = fit([(batch, best[batch][0]) for batch in best])
    print(f"{arguments.model}, sequences of {arguments.seq_len} tokens, to a loss of {arguments.loss} nats")
    known = lambda noise: "unknown" if noise is None else f"{noise:.1f}"
    print(f"{'batch':>6} {'rate':>8} {'steps':>6} {'fitted':>7} {'sequences':>10} {'noise scale':>12} "
          f"{f'over {arguments.noise_over} sequences':>20}")
    for batch in sorted(best):
        steps, told, averaged, rate = best[batch]
        fitted = least_steps + least_sequences / batch
        print(f"{batch:6} {rate:8.2g} {steps:6} {fitted:7.0f} {steps * batch:10} {known(told):>12} {known(averaged):>20}")
    if least_steps <= 0 or least_sequences <= 0:
        raise SystemExit("no hyperbola fits: batches are all far below the critical one, or all far above it")
    print(f"S_min {least_steps:.0f} steps, E_min {least_sequences:.0f} sequences: "
          f"critical batch {least_sequences / least_steps:.1f} sequences")
    for what, column in (("as told", 1), (f"over {arguments.noise_over} sequences", 2)):
        noises = sorted(run[column] for run in best.values() if run[column] is not None)
        if noises:
            print(f"noise scale at that loss, {what}: median {noises[len(noises) // 2]:.1f} sequences, "
                  f"{noises[0]:.1f} to {noises[-1]:.1f}")


if __name__ == "__main__":
    main()
