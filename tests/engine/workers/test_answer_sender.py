"""A worker's answers: sent while it works on, in order, as they were when they were handed over."""

import socket

import torch

from vitrail.engine.workers.socket_messages import AnswerSender, receive


def test_answers_nobody_reads_yet_hold_up_nobody_and_keep_their_numbers():
    ours, theirs = socket.socketpair()
    theirs.settimeout(20)
    sender = AnswerSender(theirs)
    values = torch.zeros(2**20)  # more than a socket takes before it is read
    for number in range(3):
        values.fill_(number)
        sender.send({"number": number}, {"values": values})
    values.fill_(-1)
    with ours:
        for number in range(3):
            header, tensors = receive(ours)
            assert header == {"number": number}
            assert torch.equal(tensors["values"], torch.full((2**20,), float(number)))
