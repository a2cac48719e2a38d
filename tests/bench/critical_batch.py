#!/usr/bin/env python3
"""Whether the gradient noise scale that training measures says how large a batch is worth it: steps to one loss at several
batch sizes of a tiny model, beside the noise scale at that loss.

    python3 tests/bench/critical_batch.py [--program build/release/app/ridgepoint] [--loss 2.2] [--batches 2 4 8 16 32 64]

Trains a model of a preset on text that ships, at each batch with several learning rates, of which the one counts that needs the
fewest steps. A loss is reached when the mean over the last --smooth sequences is there. Steps S and sequences E = S B
follow (S / S_min - 1)(E / E_min - 1) = 1 (McCandlish et al. 2018, arXiv 1812.06162, equation 2.11), which is S = S_min + E_min / B:
both are fitted to the least sum of squared relative errors of S, and the critical batch is E_min / S_min. The noise scale
is the run's own, an average over its last 50 steps or so. Steps do not depend on how busy the machine is.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def steps_to_loss(arguments, batch, rate):
    """Steps, and the noise scale in the last of them, of one run; None where it does not get there."""
    micro_batch = max(1, batch // 4)  # two sizes of batch to tell signal from noise by
    command = [arguments.program, "train", "--model", arguments.model, "--data", arguments.data, "--stream",
               "--seq-len", str(arguments.seq_len), "--micro-batch", str(micro_batch), "--global-batch", str(batch),
               "--measure-noise", "--lr", str(rate), "--lr-schedule", "constant", "--threads", "1",
               "--steps", str(arguments.most_sequences // batch)]
    recent = collections.deque(maxlen=max(1, arguments.smooth // batch))
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    reached = None
    for line in run.stdout:
        event = json.loads(line)
        if event["event"] == "error":
            raise SystemExit(event["message"])
        if event["event"] != "step":
            continue
        recent.append(event["loss"] if event["loss"] is not None else float("inf"))
        if len(recent) == recent.maxlen and sum(recent) / len(recent) <= arguments.loss:
            reached = event["step"], event.get("noise_scale_sequences")
            break
    run.terminate()
    errors = run.communicate()[1]
    if reached is None and run.returncode not in (0, -15):
        raise SystemExit(errors.strip() or f"{' '.join(command)} failed")
    return reached


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
    parser.add_argument("--loss", type=float, default=2.2)
    parser.add_argument("--batches", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--rates", type=float, nargs="+", default=[7e-4, 1.5e-3, 3e-3, 6e-3])
    parser.add_argument("--smooth", type=int, default=128, help="sequences that a loss is the mean over")
    parser.add_argument("--most-sequences", type=int, default=40000, help="after which a run is given up")
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
    print(f"{'batch':>6} {'rate':>8} {'steps':>6} {'fitted':>7} {'sequences':>10} {'noise scale':>12}")
    for batch in sorted(best):
        steps, noise, rate = best[batch]
        fitted = least_steps + least_sequences / batch
        print(f"{batch:6} {rate:8.2g} {steps:6} {fitted:7.0f} {steps * batch:10} "
              f"{'unknown' if noise is None else f'{noise:.1f}':>12}")
    if least_steps <= 0 or least_sequences <= 0:
        raise SystemExit("no hyperbola fits: batches are all far below the critical one, or all far above it")
    print(f"S_min {least_steps:.0f} steps, E_min {least_sequences:.0f} sequences: "
          f"critical batch {least_sequences / least_steps:.1f} sequences")
    noises = sorted(noise for _, noise, _ in best.values() if noise is not None)
    if noises:
        print(f"noise scale at that loss: median {noises[len(noises) // 2]:.1f} sequences, "
              f"{noises[0]:.1f} to {noises[-1]:.1f}")


if __name__ == "__main__":
    main()
