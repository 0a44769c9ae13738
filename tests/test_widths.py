"""Widths vectors and the reduction of the paper."""

import math

import numpy as np
import pytest
import torch

import radnet
from radnet.widths import check_widths, count_parameters, reduced_widths


@pytest.mark.parametrize(
    ("widths", "reduced", "before", "after"),
    [
        ((1, 8, 16, 8, 1), (1, 2, 3, 4, 1), 305, 34),
        ((1, 4, 4, 1), (1, 2, 3, 1), 33, 17),
        ((1, 6, 7, 1), (1, 2, 3, 1), 69, 17),
        ((2, 16, 64, 128, 16, 2), (2, 3, 4, 5, 6, 2), 11554, 100),
        ((5, 3), (5, 3), 18, 18),
        ((4, 2, 9, 9, 3), (4, 2, 3, 4, 3), 157, 50),
    ],
)
def test_reduced_widths_and_parameter_counts_are_those_of_the_paper(widths, reduced, before, after):
    assert reduced_widths(widths) == reduced
    assert count_parameters(widths) == before
    assert count_parameters(reduced) == after


def test_the_parameter_count_of_experiment_4_is_not_the_printed_one():
    assert count_parameters((784, 785, 786, 3)) == 1_236_382


def test_without_biases_no_hidden_layer_is_wider_than_the_input():
    assert reduced_widths((3, 64, 64, 1), bias=False) == (3, 3, 3, 1)
    assert reduced_widths((3, 2, 64, 1), bias=False) == (3, 2, 2, 1)
    assert count_parameters((3, 64, 1), bias=False) == 256


def test_whole_numbers_of_any_kind_are_widths():
    assert check_widths(np.array([1, 2])) == (1, 2)
    assert check_widths([torch.tensor(3), np.int64(4)]) == (3, 4)
    assert all(type(n) is int for n in check_widths([np.int64(4), 1]))


@pytest.mark.parametrize(
    ("widths", "kind", "message"),
    [
        ((), ValueError, r"widths \(\): a network needs at least"),
        ((3,), ValueError, r"widths \(3,\): a network needs at least"),
        ((2, 0, 1), ValueError, r"entry 1 is 0; a width must be at least 1"),
        ((2, -4, 1), ValueError, r"entry 1 is -4; a width must be at least 1"),
        ((2, 1.5, 1), ValueError, r"entry 1 is 1.5; a width must be a whole number"),
        ((2, math.nan, 1), ValueError, r"entry 1 is nan; a width must be a whole number"),
        ((2, math.inf, 1), ValueError, r"entry 1 is inf; a width must be a whole number"),
        ((2, 8.0, 1), TypeError, r"entry 1 is 8.0 \(float\); a width must be an int"),
        ((2, "8", 1), TypeError, r"entry 1 is '8' \(str\)"),
        ((2, None), TypeError, r"entry 1 is None"),
        ((True, 2), TypeError, r"entry 0 is True"),
        (5, TypeError, "widths 5: expected a sequence of whole numbers"),
        ("12", TypeError, "widths '12': expected a sequence"),
        (np.array(3), TypeError, "expected a sequence of whole numbers"),
        (torch.tensor(3), TypeError, "expected a sequence of whole numbers"),
        (np.array([[1, 2], [3, 4]]), TypeError, "entry 0 is array"),
        (torch.tensor([1.5, 2.0]), TypeError, "entry 0 is tensor"),
    ],
)
def test_bad_widths_are_refused_with_a_reason(widths, kind, message):
    for refuse in (check_widths, reduced_widths, radnet.RadNet, radnet.OrthogonalAction.random):
        with pytest.raises(kind, match=message) as caught:
            refuse(widths)
        assert isinstance(caught.value, radnet.RadNetError)


def test_widths_that_are_right_are_never_written_out():
    class Width(int):
        def __repr__(self):
            raise AssertionError("for thousands of layers that would take minutes")

    assert check_widths([Width(3)] * 4) == (3, 3, 3, 3)
