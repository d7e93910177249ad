"""DP-SGD by patients against a loop over patients: what is drawn, and how far one moves a step."""

import pytest
import torch
from tests.local.test_per_example import batch_of, gradient, model_of, source

from vitrail.local import per_example
from vitrail.local.per_patient import PatientGradient, PatientSampler
from vitrail.local.terms import Objective
from vitrail.rng import derive_server_key

PATIENTS = torch.tensor([0, 0, 0, 1, 2, 2, 5])


def patient_gradient(model, batch, patients, clip, noise=0.0, expected=1.0):
    rule = PatientGradient(
        clip, noise, expected, source(), PatientSampler(source(), patients).groups
    )
    rule.groups.append(patients)
    return gradient(model, rule, batch)


def slow(model, batch, patients, clip):
    """The mean gradient of each patient by one backward pass, clipped by hand in float64."""
    x, y = batch
    total = torch.zeros(model.layout.trainable, dtype=torch.float64)
    with model.training(None):
        objective = Objective(model.network, model.network.rest)
        for patient in patients.unique():
            own = patients == patient
            model.grads.zero_()
            objective.data_loss((x[own], y[own])).backward()
            mean = model.grads.double()
            total += mean * min(1.0, clip / float(mean.norm()))
    return total


@pytest.mark.parametrize("room", [1, 3, 2**24], ids=["one by one", "chunks", "all at once"])
def test_it_equals_a_loop_over_patients(room, monkeypatch):
    model, batch = model_of("linear"), batch_of(len(PATIENTS))
    numbers = sum(p.numel() for p in model.network.parameters())
    monkeypatch.setattr(per_example, "_ROOM", room if room > 3 else room * numbers)
    for clip in (0.05, 1e6):
        wanted = slow(model, batch, PATIENTS, clip)
        found = patient_gradient(model, batch, PATIENTS, clip).double()
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_a_patient_moves_a_step_by_the_clipping_norm_however_many_images_it_has():
    model, batch = model_of("linear"), batch_of(40)
    many = patient_gradient(model, batch, torch.zeros(40, dtype=torch.int64), clip=0.01)
    assert float(many.norm()) == pytest.approx(0.01, rel=1e-4)


def test_a_broken_image_silences_its_patient_alone():
    model, (x, y) = model_of("linear"), batch_of(len(PATIENTS))
    x[0] = float("nan")
    found = patient_gradient(model, (x, y), PATIENTS, 0.05).double()
    rest = slow(model, (x[3:], y[3:]), PATIENTS[3:], 0.05)
    torch.testing.assert_close(found, rest, rtol=1e-4, atol=1e-6)


def test_a_coin_decides_on_all_images_of_a_patient():
    patients = torch.tensor([2, 0, 1, 0, 2, 2, 1, 3])
    sampler = PatientSampler(derive_server_key(4).stream(), patients)
    drawn = [batch for _ in range(300) for batch in sampler(8, 4)]
    assert len(drawn) == len(sampler.groups) == 600
    for batch, group in zip(drawn, sampler.groups, strict=True):
        assert torch.equal(patients[batch], group)
        for patient in range(4):
            assert int((group == patient).sum()) in (0, int((patients == patient).sum()))
    for patient in range(4):  # each with the chance of an image: 4 of 8
        share = sum(patient in group for group in sampler.groups) / 600
        assert abs(share - 0.5) < 0.08


def test_a_batch_that_nobody_drew_by_patients_is_refused():
    model, batch = model_of("linear"), batch_of(3)
    with pytest.raises(RuntimeError, match="void the guarantee"):
        rule = PatientGradient(1.0, 1.0, 1.0, source(), PatientSampler(source(), PATIENTS).groups)
        rule.groups.append(PATIENTS)
        gradient(model, rule, batch)
