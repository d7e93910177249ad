"""A worker process: `python -m vitrail.engine.workers.worker FD` plays turns until told to stop."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.config.load import parse
from vitrail.data.normalize import Normalize
from vitrail.data.partition.partition import SiteRows
from vitrail.data.shared_memory import SharedArray
from vitrail.engine.plan import make_plan
from vitrail.engine.site_turn import Host
from vitrail.engine.tasks import RoundMessage, Task, pack_replies
from vitrail.engine.workers.processes import die_with_parent
from vitrail.engine.workers.socket_messages import (
    AnswerSender,
    ChannelClosedError,
    receive,
    receive_handles,
)
from vitrail.errors import VitrailError
from vitrail.local.inputs import Inputs, load_features
from vitrail.secure_aggregation.steps import read_request


def make_worker_host(header: dict[str, Any], tensors: dict[str, Tensor], images_fd: int) -> Host:
    """Build the resident host from the engine's first message."""
    loaded = parse(header["config"], Path(header["base"]), header["source"], stored=True)
    plan, network = make_plan(loaded, tuple(header["classes"]), header["channels"])
    images = SharedArray.attach(images_fd, header["shape"], np.uint8).view(np.uint8)
    inputs = Inputs(
        images=images,
        labels=tensors["labels"].numpy(),
        normalize=Normalize.of(loaded.config, header["channels"]),
        augment=loaded.config.data.augment,
        patients=tensors["patients"].numpy() if "patients" in tensors else None,
        unshared=tensors["unshared"].numpy() if "unshared" in tensors else None,
        device=torch.device(header["device"]),
    )
    return Host(
        plan, network, inputs, unpack_rows(header["sites"], tensors["rows"]), Path(header["folder"])
    )


def unpack_rows(index: list[list[Any]], rows: Tensor) -> dict[str, SiteRows]:
    """What `workers.pack_site` packed: counts of each site and all rows in one vector."""
    flat, at, sites = rows.numpy(), 0, {}
    for name, train, test, push in index:
        parts = np.split(flat[at : at + train + test + max(0, push)], [train, train + test])
        sites[name] = SiteRows(name, parts[0], parts[1], parts[2] if push >= 0 else None)
        at += train + test + max(0, push)
    return sites


def answer(
    host: Host, down: RoundMessage | None, header: dict[str, Any], tensors: dict[str, Tensor]
) -> Any:
    """What one request comes to: a header and tensors to send back."""
    if header["op"] == "turns":
        assert down is not None
        tasks = [Task.read(task) for task in header["tasks"]]
        return pack_replies(list(host.turns(tasks, down)))
    if header["op"] == "step":
        return host.exchange(read_request(header["request"])).header(), {}
    if header["op"] == "alone":
        host.train_alone(header["site"])
        return {}, {}
    if header["op"] == "logits":
        return {}, {"out": host.logits(host.values, tensors["rows"].numpy())}
    return {}, {"out": host.prefix(tensors["rows"].numpy(), header["view"])}


def serve(channel: socket.socket) -> None:
    """Answer requests one by one; an error is sent back as a sentence, not lost."""
    host: Host | None = None
    down: RoundMessage | None = None
    handles: list[int] = []
    answers = AnswerSender(channel)
    while True:
        header, tensors = receive(channel)
        try:
            if header["op"] == "setup":
                handles = receive_handles(channel, header["handles"])
                host = make_worker_host(header, tensors, handles[0])
            elif header["op"] == "rest":
                host = down = None
                while handles:
                    os.close(handles.pop())
                answers.send({})
            elif header["op"] == "down":
                down = RoundMessage(header["round"], tensors, header["digest"])
            elif header["op"] == "values":
                assert host is not None
                host.values = tensors["values"]
            elif header["op"] == "features":
                assert host is not None
                features = load_features(header["path"])
                host.inputs = replace(host.inputs, features=features)
            else:
                assert host is not None
                body, out = answer(host, down, header, tensors)
                answers.send({"ok": body}, out)
        except VitrailError as err:
            answers.send({"error": str(err)})
        except Exception as err:
            sentence = f"{type(err).__name__}: {err}"
            answers.send({"error": sentence, "trace": traceback.format_exc()})


def main() -> None:
    """Serve on the inherited socket until it closes."""
    die_with_parent()  # elsewhere than on Linux the closed channel ends it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        try:
            serve(channel)
        except ChannelClosedError:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # nothing is open or unwritten, and tearing down torch takes a second


if __name__ == "__main__":
    main()
