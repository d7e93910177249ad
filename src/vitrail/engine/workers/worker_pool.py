"""A pool of worker processes that share the images' memory. A dead worker's job is done again."""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.data.partition.partition import SiteRows
from vitrail.engine.tasks import Reply, RoundMessage, Task, unpack_replies
from vitrail.engine.workers.byte_frames import send_frame
from vitrail.engine.workers.pool import split_rows
from vitrail.engine.workers.processes import WorkerProcess, WorkerProcesses
from vitrail.engine.workers.socket_messages import ChannelClosedError, receive, send, send_handles
from vitrail.errors import RunError
from vitrail.local.inputs import Rows
from vitrail.secure_aggregation.steps import StepAnswer, StepRequest
from vitrail.wire import encode

Message = tuple[dict[str, Any], Mapping[str, Tensor]]
_DEATHS = 3
_WINDOW = 4


def pack_site(site: SiteRows) -> tuple[list[Any], Tensor]:
    """A site for the wire: its name and counts of rows (-1: none), and the rows themselves."""
    push = -1 if site.push is None else len(site.push)
    parts = [site.train, site.test, *([] if site.push is None else [site.push])]
    rows = torch.cat([torch.from_numpy(part) for part in parts])
    return [site.name, len(site.train), len(site.test), push], rows


def _make_error(header: Mapping[str, Any]) -> Exception:
    """What went wrong at a worker: the user's mistake as a sentence, ours with its trace."""
    if "trace" not in header:
        return RunError(header["error"])
    fault = RuntimeError(header["error"])
    fault.add_note(header["trace"])
    return fault


@dataclass(frozen=True)
class WorkerSetup:
    """What makes an idle worker a worker of one run."""

    header: dict[str, Any]
    tensors: Mapping[str, Tensor]
    handles: tuple[int, ...]
    owner: object  # keeps the shared memory behind the handles alive


class WorkerPool:
    """N processes, one thread each. Jobs go out in order; answers come back in that order."""

    run = ""

    def __init__(
        self, crew: WorkerProcesses, count: int, setup: WorkerSetup, together: int = 1
    ) -> None:
        self._crew = crew
        self._together = together  # sites that train at once
        self._setup = setup
        self._extra: list[Message] = []
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self._common: Message | None = None
        self._workers = [self._start() for _ in range(count)]

    def _start(self) -> WorkerProcess:
        worker = self._crew.take()
        try:
            send(worker.channel, self._setup.header, self._setup.tensors)
            send_handles(worker.channel, self._setup.handles)
            for header, tensors in [*self._extra, *([self._common] if self._common else [])]:
                send(worker.channel, header, tensors)
        except ChannelClosedError:
            worker.end()
            raise RunError(
                f"a worker process ended as it started (exit code {worker.process.returncode})",
                hint="Its own words stand above; run.workers = 1 does without.",
            ) from None
        return worker

    def turns(self, tasks: Sequence[Task], down: RoundMessage) -> Iterator[Reply]:
        """Broadcast the message once to each process, then deal out the tasks: one a job, or as
        many as train together, shared out evenly."""
        self._broadcast({"op": "down", "round": down.round, "digest": down.digest}, down.tensors)
        size = max(1, min(self._together, -(-len(tasks) // len(self._workers))))
        groups = [tasks[first : first + size] for first in range(0, len(tasks), size)]
        jobs: list[Message] = [
            ({"op": "turns", "tasks": [task.header() for task in group]}, {}) for group in groups
        ]
        for header, tensors in self._run(jobs):
            yield from unpack_replies(header, tensors)

    def exchange(self, requests: Sequence[StepRequest]) -> Iterator[StepAnswer]:
        """One step of one site a job."""
        jobs: list[Message] = [({"op": "step", "request": asdict(r)}, {}) for r in requests]
        for header, _ in self._run(jobs):
            yield StepAnswer.read(header)

    def verify(self, site: str, statement: bytes, signature: str) -> bool:
        """Sites of a simulation have no keys."""
        del site, statement, signature
        return True

    def logits(self, values: Tensor, rows: Rows) -> Tensor:
        """The model crosses to each process once, then one chunk of rows a job."""
        self._broadcast({"op": "values"}, {"values": values})
        jobs: list[Message] = [
            ({"op": "logits"}, {"rows": torch.from_numpy(chunk)}) for chunk in split_rows(rows)
        ]
        return torch.cat([tensors["out"] for _, tensors in self._run(jobs)])

    def prefix(self, chunks: Sequence[Rows], view: str) -> Iterator[Tensor]:
        """One chunk a job."""
        jobs = [
            ({"op": "prefix", "view": view}, {"rows": torch.from_numpy(chunk)}) for chunk in chunks
        ]
        for _, tensors in self._run(jobs):
            yield tensors["out"]

    def train_alone(self, sites: Sequence[str]) -> Iterator[str]:
        """One site a job."""
        jobs: list[Message] = [({"op": "alone", "site": site}, {}) for site in sites]
        for site, _ in zip(sites, self._run(jobs), strict=True):
            yield site

    def use_features(self, path: Path) -> None:
        """Every process maps the file."""
        message: Message = ({"op": "features", "path": str(path)}, {})
        self._extra.append(message)
        for worker in self._workers:
            send(worker.channel, *message)

    def close(self) -> None:
        """Give the processes back to the crew; those in the middle of something are dismissed."""
        for worker in self._workers:
            try:
                if worker.jobs:
                    raise ChannelClosedError
                send(worker.channel, {"op": "rest"})
                receive(worker.channel)
                self._crew.give(worker)
            except ChannelClosedError:
                worker.end()
        self._workers = []
        torch.set_num_threads(self._threads)

    def _broadcast(self, header: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self._common = (header, tensors)
        raw = encode(header, tensors)
        for at, worker in enumerate(self._workers):
            try:
                send_frame(worker.channel, raw)
            except ChannelClosedError:
                worker.end()
                self._workers[at] = self._start()

    def _run(self, jobs: Sequence[Message]) -> Iterator[Message]:
        """Deal out jobs in order, at most a window ahead; yield answers in that same order."""
        waiting, done, deaths, next_out = (
            deque(range(len(jobs))),
            {},
            dict.fromkeys(range(len(jobs)), 0),
            0,
        )
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.channel, selectors.EVENT_READ, worker)
            while next_out < len(jobs):
                self._assign_jobs(jobs, waiting, next_out, deaths, selector)
                for key, _ in selector.select():
                    worker = key.data
                    try:
                        header, tensors = receive(worker.channel)
                    except ChannelClosedError:
                        self._replace_dead(worker, waiting, deaths, selector)
                        continue
                    if "error" in header:
                        raise _make_error(header)
                    done[worker.jobs.popleft()] = (header["ok"], tensors)
                # Before the engine looks at what came: nobody waits for it.
                self._assign_jobs(jobs, waiting, next_out, deaths, selector)
                while next_out in done:
                    yield done.pop(next_out)
                    next_out += 1

    def _assign_jobs(
        self,
        jobs: Sequence[Message],
        waiting: deque[int],
        next_out: int,
        deaths: dict[int, int],
        selector: selectors.BaseSelector,
    ) -> None:
        """One job each; a second one in advance while there is plenty, so that nobody idles."""
        for depth in (1, 2):
            for worker in list(self._workers):
                plenty = depth == 1 or len(waiting) > len(self._workers)
                inside = bool(waiting) and waiting[0] < next_out + _WINDOW * len(self._workers)
                if len(worker.jobs) < depth and plenty and inside:
                    job = waiting.popleft()
                    worker.jobs.append(job)
                    try:
                        send(worker.channel, *jobs[job])
                    except ChannelClosedError:
                        self._replace_dead(worker, waiting, deaths, selector)

    def _replace_dead(
        self,
        worker: WorkerProcess,
        waiting: deque[int],
        deaths: dict[int, int],
        selector: selectors.BaseSelector,
    ) -> None:
        """Start another worker; what the dead one had is dealt out again, first of all."""
        selector.unregister(worker.channel)
        worker.end()
        for job in reversed(worker.jobs):
            deaths[job] += 1
            if deaths[job] >= _DEATHS:
                raise RunError(
                    f"worker processes died {_DEATHS} times at the same job "
                    f"(last exit code {worker.process.returncode})",
                    hint="Most often memory ran out: use fewer workers or a smaller batch_size.",
                )
            waiting.appendleft(job)
        fresh = self._start()
        self._workers[self._workers.index(worker)] = fresh
        selector.register(fresh.channel, selectors.EVENT_READ, fresh)
