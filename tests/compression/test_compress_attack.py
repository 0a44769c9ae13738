"""Random programs against `compress`: the same function comes back, at every shape, or a refusal with a reason."""

import collections
import copy
import types

import pytest
import torch
from torch import nn

import radnet
from program_operations import OPERATIONS, PAIRS, PAIRS_BY_EXPORT
from program_oracle import check
from program_writer import one_thread
from programs import dtype_of, planned, program
from wrong_models import damaged, gaps

CHUNKS = 20
AT_JUMP = ("every input lies at a jump of an activation", "rounding alone moves what the original gives")


def attack(seeds, by_export, rewrite):
    """The outcomes of programs, and what there is to say about them."""
    outcomes = []
    with one_thread():
        for seed in seeds:
            p = program(seed, by_export)
            outcomes.append(check(p, dtype_of(p)))
            if rewrite and seed // 3 % 3 == 0 and "kept" not in p.operations:  # no graph leaves anything on a module
                outcomes.append(check(p, dtype_of(p), rewrite=True))
    return outcomes


def truly(outcome):
    """Whether the reason for a refusal holds: these programs give no other reason than a jump under all rows."""
    return any(reason in outcome.text for reason in AT_JUMP) and outcome.at_jump


def judge(outcomes, evidence, claim, many):
    """Nothing is wrong, nothing raises, and few are refused, each for a reason."""
    found = collections.Counter(o.verdict for o in outcomes)
    refused = [str(o) for o in outcomes if o.verdict == "refused"]
    evidence(
        claim,
        programs=len(outcomes),
        **{verdict: found[verdict] for verdict in ("lossless", "refused", "wrong", "raw")},
        smaller=sum(o.after < o.before for o in outcomes if o.verdict == "lossless"),
        by_export=sum(o.way == "torch.export" for o in outcomes),
        shapes=sum(o.shapes for o in outcomes),
        rows=sum(o.rows for o in outcomes),
        rows_at_jump=sum(o.skipped for o in outcomes),
        refusals=refused,
    )
    assert [str(o) for o in outcomes if o.verdict in ("wrong", "raw")] == []
    assert [str(o) for o in outcomes if o.verdict == "refused" and not truly(o)] == []
    if many:
        assert len(refused) < 0.03 * len(outcomes), refused


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_programs_are_the_same_function_at_every_shape(chunk, count, evidence):
    number = count(20, 9000) // CHUNKS
    seeds = [chunk + CHUNKS * i for i in range(number)]
    judge(attack(seeds, False, True), evidence, f"random programs, part {chunk + 1} of {CHUNKS}", number >= 100)


@pytest.mark.parametrize("chunk", range(10))
def test_random_programs_that_fx_cannot_follow_are_the_same_function_at_every_shape(chunk, count, evidence):
    number = count(10, 1000) // 10
    if number == 1 and chunk % 2:
        pytest.skip("at full counts only")
    seeds = [chunk + 10 * i for i in range(number)]
    if number == 1:  # a loop over a length is unrolled by torch.export, which takes its time
        seeds = [seed for seed in range(chunk, 100, 10) if "recurrent" not in program(seed, True).operations][:1]
    judge(attack(seeds, True, False), evidence, f"random programs by export, part {chunk + 1} of 10", number >= 100)


@pytest.mark.parametrize("seed", [10, 15])
def test_what_compress_exports_for_itself_runs_what_eager_code_runs(seed):
    """A rescaling in its lean form, as shipped programs hold it, lacks operations of the run it is compared with.

    Nor may eager code run what only an exported program needs: a guard of profiles near 0 (15).
    """
    p = program(seed, True)
    assert "functional_rescaling" in p.operations
    assert check(p, dtype_of(p)).verdict == "lossless"


@pytest.mark.parametrize(("by_export", "pairs"), [(False, PAIRS), (True, PAIRS_BY_EXPORT)])
def test_every_pair_of_operations_occurs_in_the_programs(by_export, pairs, count, evidence):
    number = count(40, 1000) if by_export else count(100, 9000)
    seen = collections.Counter()
    for seed in range(number):
        p = program(seed, by_export)
        assert set(planned(seed, by_export)) <= p.pairs
        seen.update(p.pairs)
    evidence(
        f"pairs of operations{' by export' if by_export else ''}",
        programs=number,
        operations=len(OPERATIONS),
        pairs=len(pairs),
        seen=len(seen.keys() & set(pairs)),
        least=min(seen[pair] for pair in pairs),
    )
    if number >= 1000:
        assert [pair for pair in pairs if not seen[pair]] == []
    assert len(seen) > min(number, len(pairs))


@pytest.mark.parametrize("by_export", [False, True])
def test_a_seed_is_a_program(by_export):
    for seed in range(20):
        p, again = program(seed, by_export), program(seed, by_export)
        assert p == again
        a, b = p.build().state_dict(), again.build().state_dict()
        assert all(a[name].equal(b[name]) for name in a)
    assert program(0) != program(1)


# --- the oracle itself


def given_back(monkeypatch, make):
    """Let compress return what `make` makes of a model."""

    def compressed(model, inputs, rewrite=False):
        return types.SimpleNamespace(network=make(model), traced_by="")

    monkeypatch.setattr(radnet, "compress", compressed)


@pytest.mark.parametrize("by_export", [False, True])
def test_the_oracle_finds_every_program_to_be_itself(by_export, monkeypatch):
    given_back(monkeypatch, copy.deepcopy)
    found = [check(p, dtype_of(p)) for p in (program(seed, by_export) for seed in range(12))]
    assert {o.verdict for o in found} == {"lossless"}
    assert sum(o.rows for o in found) > 4 * sum(o.skipped for o in found)


def test_the_oracle_sees_a_damage(monkeypatch):
    seen = 0
    for seed in range(15):
        p = program(seed)
        if p.single:
            continue
        model, inputs = p.build(), p.draw(torch.Generator().manual_seed(seed))
        wrong, what = damaged(model, seed)
        differs = any(bool((gap > 1e-6 * scale).any()) for gap, scale in gaps(model, wrong, inputs, 1e-3).values())
        given_back(monkeypatch, lambda model, wrong=wrong: wrong)
        assert check(p, torch.float64).verdict == "wrong" or not differs, (seed, what)
        seen += differs
    assert seen > 5


def test_the_oracle_sees_what_only_other_inputs_show(monkeypatch):
    p = program(0)
    for answer in (
        lambda model: Otherwise(model, lambda out, x: out if len(x) < 20 else [2 * out]),
        lambda model: Otherwise(model, lambda out, x: out if x.abs().max() < 50 else {"only": out}),
        lambda model: Otherwise(model, lambda out, x: None),
    ):
        given_back(monkeypatch, answer)
        assert check(p, torch.float64).verdict == "wrong"


class Otherwise(nn.Module):
    """Another model, with something done to what it gives."""

    def __init__(self, model, change):
        super().__init__()
        self.model, self.change = copy.deepcopy(model), change

    def forward(self, x, *more, **options):
        return self.change(self.model(x, *more, **options), x)


@pytest.mark.parametrize(("error", "verdict"), [(radnet.RadNetError("no"), "refused"), (ValueError("no"), "raw")])
def test_a_refusal_is_a_radnet_error_and_nothing_else(error, verdict, monkeypatch):
    def refuse(model, inputs, rewrite=False):
        raise error

    monkeypatch.setattr(radnet, "compress", refuse)
    found = check(program(0), torch.float64)
    assert (found.verdict, truly(found)) == (verdict, False)
