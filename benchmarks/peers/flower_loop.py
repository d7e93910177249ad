"""The same work on Flower's simulation: Ray workers with one CPU and one thread each.

benchmarks/.peers/flower/bin/python benchmarks/peers/flower_loop.py --model small-cnn --rounds 20
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from importlib.metadata import version

import work

import models

# read when flwr is imported, and by the workers
os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", OMP_NUM_THREADS="1")
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")

import flower_app
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation


class TimedFedAvg(FedAvg):
    """Flower's FedAvg, which reads the clock at the end of each round."""

    def __init__(self, clock: work.Clock) -> None:
        share = work.SITES_A_ROUND / work.SITES
        super().__init__(share, 0.0, work.SITES_A_ROUND, 0, work.SITES)
        self.clock = clock

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        failed = [reply for reply in replies if reply.has_error()]
        if failed or len(replies) != work.SITES_A_ROUND:
            reason = failed[0].error.reason if failed else f"{len(replies)} replies"
            raise SystemExit(f"round {server_round} is not the work to be timed: {reason}")
        result = super().aggregate_train(server_round, replies)
        self.clock.tick()
        return result


def main() -> None:
    """Time the rounds and print the figures."""
    args = work.parse_arguments(workers={"type": int, "default": os.cpu_count()})
    logging.getLogger("flwr").setLevel(logging.ERROR)
    clock = work.Clock()
    network = models.build(args.model)
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:  # noqa: ARG001
        result = TimedFedAvg(clock).start(
            grid,
            ArrayRecord(network.state_dict()),
            args.rounds,
            train_config=ConfigRecord({"model": args.model}),
        )
        network.load_state_dict(result.arrays.to_torch_state_dict())

    run_simulation(
        server_app=server,
        client_app=flower_app.app,
        num_supernodes=work.SITES,
        backend_config={
            "init_args": {"num_cpus": args.workers, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    final = work.compute_loss(network, *work.make_images())
    system = f"Flower, {args.workers} workers"
    work.report(args, clock, final, system=system, flwr=version("flwr"), ray=version("ray"))


if __name__ == "__main__":
    main()
