#!/usr/bin/env python3
"""Two data-parallel ranks, a core each, beside one rank on one core and beside PyTorch's DistributedDataParallel over gloo;
an all-reduce of 64 MiB beside gloo's and Open MPI's.

    python3 tests/bench/ranks.py [--program build/release/app/ridgepoint] [--model gpt-10m] [--rounds 5]

Needs torch; Open MPI's line needs mpicc and mpirun. Every alternative runs in each round, one after the other, and its
shortest step counts: on a machine that others use, that is what it takes when they leave it alone. The global batch is the same
for one rank and for two.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as train_step.py

STEPS = 5
MIB = 64
REPEATED = 9

MPI_PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, count = atoi(argv[1]), times = atoi(argv[2]);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  float* values = malloc(count * sizeof(float));
  for (int i = 0; i < count; ++i) values[i] = 1;
  for (int i = 0; i < times; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%.9f\n", MPI_Wtime() - begin);
  }
  MPI_Finalize();
}
"""


def cores(number):
    return sorted(os.sched_getaffinity(0))[:number]


def on_cores(number):
    return ["taskset", "--cpu-list", ",".join(map(str, cores(number)))]


def program_steps(program, model, length, batch, ranks):
    with tempfile.NamedTemporaryFile(suffix=".bin") as data:
        # Bytes as 16-bit tokens.
        data.write(b"".join(bytes((byte, 0)) for byte in os.urandom((STEPS + 2) * batch * length + length + 1)))
        data.flush()
        lines = subprocess.run(
            on_cores(ranks) +
            [program, "train", "--model", model, "--data", data.name, "--dtype", "fp32", "--device", "cpu", "--dp", str(ranks),
             "--micro-batch", str(batch // ranks), "--global-batch", str(batch), "--seq-len", str(length), "--steps", str(STEPS),
             "--threads", "1", "--stream"],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.splitlines()
    return [event["seconds"] for event in map(json.loads, lines) if event["event"] == "step"]


def program_all_reduce(program):
    rows = json.loads(subprocess.run(
        on_cores(2) + [program, "bench", "--collectives", "2", "--largest-mib", str(MIB), "--seconds", "0.1", "--format", "json"],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout)["rows"]
    return [row["seconds"] for row in rows if row["collective"] == "all_reduce" and row["bytes"] == MIB << 20]


# As a rank: this file, started with these words.
def torch_rank(what, rank, ranks, store, model, batch):
    os.sched_setaffinity(0, {cores(ranks)[rank]})
    import torch
    import torch.distributed as distributed
    import train_step
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if ranks > 1:
        distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    durations = []
    if what == "all_reduce":
        values = torch.ones(MIB << 18)
        for _ in range(REPEATED):
            distributed.barrier()
            begin = time.perf_counter()
            distributed.all_reduce(values)
            durations.append(time.perf_counter() - begin)
    else:
        shape = train_step.SHAPES[model]
        module = train_step.Model(shape)
        optimizer = torch.optim.AdamW(module.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        if ranks > 1:
            module = torch.nn.parallel.DistributedDataParallel(module)
        for _ in range(STEPS):
            tokens = torch.randint(256, (batch // ranks, shape.T + 1))
            if ranks > 1:
                distributed.barrier()
            begin = time.perf_counter()
            optimizer.zero_grad()
            module(tokens[:, :-1], tokens[:, 1:]).backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            durations.append(time.perf_counter() - begin)
    if rank == 0:
        print(json.dumps(durations), flush=True)
    if ranks > 1:
        distributed.barrier()
        distributed.destroy_process_group()


def torch_durations(what, ranks, model, batch):
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen([sys.executable, os.path.abspath(__file__), "--as-rank", what, str(rank), str(ranks),
                              os.path.join(folder, "store"), model, str(batch)],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for rank in range(ranks)
        ]
        texts = [process.communicate()[0] for process in processes]
    if any(process.returncode != 0 for process in processes):
        sys.exit(f"PyTorch's {what} over {ranks} ranks failed")
    return json.loads(texts[0])


class OpenMpi:
    """Its all-reduce, compiled here; not there without its compiler."""

    def __init__(self, folder):
        self.program = None
        if not (shutil.which("mpicc") and shutil.which("mpirun")):
            return
        source = os.path.join(folder, "all_reduce.c")
        with open(source, "w") as file:
            file.write(MPI_PROGRAM)
        self.program = os.path.join(folder, "all_reduce")
        subprocess.run(["mpicc", "-O2", source, "-o", self.program], check=True)

    def all_reduce(self):
        lines = subprocess.run(
            on_cores(2) + ["mpirun", "--allow-run-as-root", "--bind-to", "core", "-n", "2", self.program, str(MIB << 18), str(REPEATED)],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.split()
        return [float(line) for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/app/ridgepoint")
    parser.add_argument("--model", default="gpt-10m")
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step, whatever the number of ranks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--all-reduce-only", action="store_true")
    arguments = parser.parse_args()
    if len(cores(2)) < 2:
        sys.exit("two ranks need two cores")
    import train_step
    import torch
    length = train_step.SHAPES[arguments.model].T

    times = {}  # by alternative
    with tempfile.TemporaryDirectory() as folder:
        mpi = OpenMpi(folder)
        for _ in range(arguments.rounds):
            if not arguments.all_reduce_only:
                for ranks in (1, 2):
                    times.setdefault(("ridgepoint", ranks), []).extend(
                        program_steps(arguments.program, arguments.model, length, arguments.batch, ranks)[1:])
                    times.setdefault(("PyTorch", ranks), []).extend(
                        torch_durations("steps", ranks, arguments.model, arguments.batch)[1:])
            times.setdefault("ridgepoint", []).extend(program_all_reduce(arguments.program))
            times.setdefault("gloo", []).extend(torch_durations("all_reduce", 2, arguments.model, arguments.batch)[1:])
            if mpi.program:
                times.setdefault("Open MPI", []).extend(mpi.all_reduce()[1:])

    least = {what: min(durations) for what, durations in times.items()}
    if not arguments.all_reduce_only:
        print(f"{arguments.model}, {arguments.batch} sequences of {length} tokens a step; least of {arguments.rounds} rounds")
        print(f"{'':24} {'one rank':>10} {'two ranks':>10} {'speed-up':>9}")
        for who in ("ridgepoint", "PyTorch"):
            one, two = least[who, 1], least[who, 2]
            name = who if who == "ridgepoint" else f"PyTorch {torch.__version__.split('+')[0]}"
            print(f"{name:24} {one:8.3f} s {two:8.3f} s {one / two:9.2f}")
        print(f"{'ridgepoint / PyTorch':24} {least['ridgepoint', 1] / least['PyTorch', 1]:10.2f} "
              f"{least['ridgepoint', 2] / least['PyTorch', 2]:10.2f}")
    print(f"all-reduce of {MIB} MiB over two ranks, least (and median)")
    for who in ("ridgepoint", "gloo", "Open MPI"):
        if who in times:
            print(f"{who:24} {1e3 * least[who]:8.1f} ms ({1e3 * statistics.median(times[who]):.1f})  "
                  f"{least[who] / least['ridgepoint']:6.2f} times ridgepoint's")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--as-rank":
        what, rank, ranks, store, model, batch = sys.argv[2:]
        torch_rank(what, int(rank), int(ranks), store, model, int(batch))
    else:
        main()
