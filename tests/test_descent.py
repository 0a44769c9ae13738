"""Projected gradient descent: the interpolating space, the theorem and how far it reaches, the optimizer's manners."""

import copy
import pickle

import pytest
import torch

import radnet
from radnet.measuring import nudged as _nudged
from radnet.testing import assert_same_function
from strategies import ACTIVATIONS

KINDS = sorted(ACTIVATIONS)
SGD = lambda p, **k: torch.optim.SGD(p, lr=0.01, **k)  # noqa: E731
OPTIMIZERS = {
    "sgd": SGD,
    "momentum": lambda p: SGD(p, momentum=0.9),
    "nesterov": lambda p: SGD(p, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


def problem(kind="sigmoid", widths=(2, 6, 7, 1), shift="trainable", seed=0, bias=True):
    """A network whose hidden norms keep away from 0, and data for it."""
    generator = torch.Generator().manual_seed(seed)
    rho = ACTIVATIONS[kind](shift=shift, dtype=torch.float64)
    net = radnet.RadNet(widths, rho, init="linear", bias=bias, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        for b in net.biases:
            if b is not None:
                b.mul_(2)
        for W in net.weights:
            W.mul_(1.5)
    x = torch.randn(20, widths[0], generator=generator, dtype=torch.float64)
    y = torch.randn(20, widths[-1], generator=generator, dtype=torch.float64)
    return net, x, y


def descend(start, data, k, make=SGD, projected=False):
    """gamma^k, or gamma_proj^k, on a copy."""
    net = copy.deepcopy(start)
    x, y = data
    optimizer = make(net.parameters())
    if projected:
        optimizer = radnet.ProjectedOptimizer(optimizer, net)
    for _ in range(k):
        optimizer.zero_grad()
        (net(x) - y).square().mean().backward()
        optimizer.step()
    return net


def distance(a, b):
    """Largest difference of all parameters, shifts included."""
    return max(float((p - q).detach().abs().max()) for p, q in zip(a.parameters(), b.parameters(), strict=True))


def merged_distance(A, B):
    return max(float((a - b).detach().abs().max()) for a, b in zip(A, B, strict=True))


def nudged(net, seed=1):
    other = copy.deepcopy(net)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in other.parameters():
            p.copy_(_nudged(p, generator))
    return other


def pieces(net):
    c = radnet.compress(net)
    return c.action, c.transformed(), c.network, c.remainder()


def iota_plus(V, U):
    return [radnet.linalg.pad(V_i, *U_i.shape) + U_i for V_i, U_i in zip(V.merged(), U, strict=True)]


@pytest.mark.parametrize("shift", [None, "trainable"])
@pytest.mark.parametrize("kind", KINDS)
def test_descent_commutes_with_the_action_and_projected_descent_is_reduced_descent(kind, shift, evidence):
    """thm:proj-gd, both parts, k = 50: below 1e-11."""
    net, *data = problem(kind, shift=shift)
    Q, T, V, U = pieces(net)
    k = 50
    part1 = distance(descend(net, data, k), Q.apply(descend(T, data, k)))
    T_k, V_k = descend(T, data, k, projected=True), descend(V, data, k)
    part2 = merged_distance(T_k.merged(), iota_plus(V_k, U))
    hidden = zip(T_k.activations[:-1], V_k.activations[:-1], strict=True)
    shifts = [abs(float((a.shift - b.shift).detach())) for a, b in hidden if a.shift is not None]
    evidence("thm:proj-gd, k = 50", activation=kind, shift=shift, part1=part1, part2=part2)
    assert part1 < 1e-11
    assert part2 < 1e-11
    assert all(t < 1e-11 for t in shifts)
    if shift:
        assert any(abs(float(rho.shift.detach())) > 1e-6 for rho in V_k.activations[:-1]) or kind == "step_relu"


@pytest.mark.parametrize("shift", [None, "trainable"])
@pytest.mark.parametrize("kind", KINDS)
def test_long_descent_drifts_no_more_than_rounding_of_the_start_would_make_it(kind, shift, count, evidence):
    """k up to 3000: below 100 times the drift that one ulp of the start causes."""
    net, *data = problem(kind, widths=(1, 6, 7, 1), shift=shift)
    Q, T, V, U = pieces(net)
    k = count(60, 3000)
    end = descend(net, data, k)
    drift = max(distance(end, descend(nudged(net, seed), data, k)) for seed in range(3))
    V_k = descend(V, data, k)
    drift_red = max(distance(V_k, descend(nudged(V, seed), data, k)) for seed in range(3))
    part1 = distance(end, Q.apply(descend(T, data, k)))
    part2 = merged_distance(descend(T, data, k, projected=True).merged(), iota_plus(V_k, U))
    evidence(
        "thm:proj-gd, long",
        activation=kind,
        shift=shift,
        k=k,
        part1=part1,
        part2=part2,
        drift=drift,
        drift_red=drift_red,
    )
    assert part1 <= 100 * max(drift, 1e-15)
    assert part2 <= 100 * max(drift_red, 1e-15)


@pytest.mark.parametrize("name", ["momentum", "nesterov", "adam"])
def test_part_2_holds_for_every_coordinatewise_optimizer(name, evidence):
    net, *data = problem()
    _, T, V, U = pieces(net)
    make = OPTIMIZERS[name]
    T_k, V_k = descend(T, data, 100, make, projected=True), descend(V, data, 100, make)
    gap = merged_distance(T_k.merged(), iota_plus(V_k, U))
    evidence("thm:proj-gd part 2, other optimizers", optimizer=name, gap=gap)
    assert gap < 1e-10
    assert merged_distance(V.merged(), V_k.merged()) > 1e-3  # something happened


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_with_weight_decay_the_corners_and_functions_agree_while_u_decays(name):
    eta, decay, k = 0.01, 0.1, 60
    make = {
        "sgd": lambda p: torch.optim.SGD(p, lr=eta, weight_decay=decay),
        "adamw": lambda p: torch.optim.AdamW(p, lr=eta, weight_decay=decay),
    }[name]
    net, *data = problem()
    _, T, V, U = pieces(net)
    space = radnet.InterpolatingSpace(net.widths)
    T_k, V_k = descend(T, data, k, make, projected=True), descend(V, data, k, make)
    assert distance(space.q_2(T_k), V_k) < 1e-11
    assert_same_function(T_k, V_k, data[0])
    U_k = [T_i - radnet.linalg.pad(V_i, *T_i.shape) for T_i, V_i in zip(T_k.merged(), V_k.merged(), strict=True)]
    assert merged_distance(U_k, [(1 - eta * decay) ** k * U_i for U_i in U]) < 1e-11
    assert max(float(U_i.abs().max()) for U_i in U) > 0.1


@pytest.mark.parametrize("name", ["momentum", "nesterov", "decay"])
def test_part_1_holds_for_rotation_equivariant_optimizers(name):
    make = {**OPTIMIZERS, "decay": lambda p: SGD(p, weight_decay=0.1)}[name]
    net, *data = problem()
    Q, T, _, _ = pieces(net)
    assert distance(descend(net, data, 50, make), Q.apply(descend(T, data, 50, make))) < 1e-11


def test_part_1_fails_for_adam():
    net, *data = problem()
    Q, T, _, _ = pieces(net)
    gap = distance(descend(net, data, 5, OPTIMIZERS["adam"]), Q.apply(descend(T, data, 5, OPTIMIZERS["adam"])))
    assert gap > 1e-3


def test_networks_without_biases_obey_the_theorem_too():
    net, *data = problem("squash", widths=(2, 7, 8, 1), bias=False)
    Q, T, V, U = pieces(net)
    assert distance(descend(net, data, 30), Q.apply(descend(T, data, 30))) < 1e-11
    assert merged_distance(descend(T, data, 30, projected=True).merged(), iota_plus(descend(V, data, 30), U)) < 1e-11


def test_usual_descent_leaves_the_space_so_the_projection_does_something():
    net, *data = problem()
    _, T, _, _ = pieces(net)
    space = radnet.InterpolatingSpace(net.widths)
    left = descend(T, data, 1)
    assert not space.contains(left)
    assert merged_distance(descend(T, data, 5).merged(), descend(T, data, 5, projected=True).merged()) > 1e-6


# --- the example (1, 3, 1)


def example_131(p):
    """The loss of the paper's example: the value at x = 1 of the linear network."""
    net = radnet.RadNet.from_merged(p, ["identity", "identity"])
    return net, lambda n: n(torch.ones(1, 1, dtype=torch.float64)).sum()


def test_errata_12_one_projected_step_of_the_example_is_worse_by_2_eta_j_squared():
    a, b, c, d, g, h, i, j = (0.3, -1.2, 0.7, 0.4, 0.1, -0.8, 0.5, 1.7)
    eta = 0.125
    p = [torch.tensor(rows, dtype=torch.float64) for rows in ([[a, b], [c, d], [0, 0]], [[g, h, i, j]])]
    losses = []
    for projected in (False, True):
        net, loss = example_131(p)
        assert float(loss(net).detach()) == pytest.approx(h * (a + b) + i * (c + d) + g)
        optimizer = torch.optim.SGD(net.parameters(), lr=eta)
        if projected:
            optimizer = radnet.ProjectedOptimizer(optimizer, net)
        loss(net).backward()
        assert radnet.InterpolatingSpace((1, 3, 1)).forgone(net) == pytest.approx(2**0.5 * j)
        optimizer.step()
        losses.append(float(loss(net).detach()))
    assert losses[0] - losses[1] == pytest.approx(-2 * eta * j**2, rel=1e-12)  # not +2 eta j^2, as printed


def test_compress_then_train_differs_from_train_then_compress():
    net, *data = problem("squash", widths=(1, 3, 1), seed=1)
    make = lambda p: torch.optim.SGD(p, lr=0.5)  # noqa: E731
    first = descend(radnet.compress(net).network, data, 50, make)
    last = radnet.compress(descend(net, data, 50, make)).network
    assert float((first(data[0]) - last(data[0])).detach().abs().max()) > 1e-4


# --- gradients and symmetry


def gradients(net, data):
    net.zero_grad()
    (net(data[0]) - data[1]).square().mean().backward()
    return [torch.cat([b.grad.unsqueeze(1), W.grad], 1) for W, b in zip(net.weights, net.biases, strict=True)]


def test_gradients_are_carried_along_by_the_action(count, evidence):
    """lem:nabla-g: grad at v is Q^T (grad at Q v); lem:orth-gd follows."""
    worst = 0.0
    for seed in range(count(15, 100)):
        net, *data = problem(KINDS[seed % len(KINDS)], seed=seed)
        Q = radnet.OrthogonalAction.random(net.widths, torch.Generator().manual_seed(seed))
        moved = Q.apply(net)
        carrier = radnet.RadNet.from_merged(gradients(net, data), net.activations)
        expected = Q.apply(carrier).merged()
        got = gradients(moved, data)
        scale = max(float(G.abs().max()) for G in got)
        worst = max(worst, merged_distance(expected, got) / scale)
    evidence("lem:nabla-g", worst_relative_gap=worst)
    assert worst < 1e-11


def test_the_antisymmetric_identity_holds_at_every_hidden_layer(count, evidence):
    """antisym(grad A_i A_i^T - W_{i+1}^T grad W_{i+1}) = 0, because the loss is invariant under O(n_i)."""
    worst = 0.0
    for seed in range(count(20, 100)):
        net, *data = problem(KINDS[seed % len(KINDS)], seed=seed)
        A, G = [A_i.detach() for A_i in net.merged()], gradients(net, data)
        for i in range(len(A) - 1):
            M = G[i] @ A[i].mT - A[i + 1][:, 1:].mT @ G[i + 1][:, 1:]
            scale = float(G[i].norm() * A[i].norm() + A[i + 1].norm() * G[i + 1].norm())
            worst = max(worst, float((M - M.mT).norm()) / scale)
    evidence("antisymmetric identity", networks=count(20, 100), worst_relative=worst)
    assert worst < 1e-13


# --- the space and its maps


def test_the_maps_are_those_of_the_diagram():
    net, *_ = problem()
    space = radnet.InterpolatingSpace(net.widths)
    _, T, V, _ = pieces(net)
    for A, T_i, n, n_before in zip(
        net.merged(), space.q_1(net).merged(), space.reduced[1:], space.reduced, strict=False
    ):
        expected = A.detach().clone()
        expected[n:, : 1 + n_before] = 0
        assert torch.equal(T_i, expected)
    assert torch.equal(space.q_2(space.iota_2(V)).merged()[1], V.merged()[1])  # q_2 iota_2 = id
    assert merged_distance(space.q_1(space.iota_1(T)).merged(), T.merged()) == 0  # q_1 iota_1 = id
    assert distance(space.q_2(T), V) == 0
    assert space.contains(T)
    assert not space.contains(net)


def test_the_inclusions_and_projections_leave_the_function_alone_where_the_lemma_says():
    """lem:repint 1 and 2."""
    net, x, _ = problem()
    space = radnet.InterpolatingSpace(net.widths)
    _, T, V, _ = pieces(net)
    assert_same_function(V, space.iota_2(V), x)
    assert_same_function(T, space.q_2(T), x)
    assert float((space.q_1(net)(x) - net(x)).detach().abs().max()) > 1e-3


def test_the_projected_gradient_is_the_padded_reduced_one():
    """lem:repint 3: q_1(grad at T) = iota_2(grad at q_2(T))."""
    net, *data = problem()
    _, T, V, _ = pieces(net)
    n, n_red = net.widths, V.widths
    full, small = gradients(T, data), gradients(V, data)
    for i, (G, g) in enumerate(zip(full, small, strict=True)):
        q_1 = G.clone()
        q_1[n_red[i + 1] :, : 1 + n_red[i]] = 0
        assert float((q_1 - radnet.linalg.pad(g, n[i + 1], 1 + n[i])).abs().max()) < 1e-12


def test_blocks_are_views_and_shifts_are_never_projected():
    net, *_ = problem()
    space = radnet.InterpolatingSpace(net.widths)
    with torch.no_grad():
        net.activations[0].shift.fill_(0.7)
    blocks = space.blocks(net)
    assert {b.untyped_storage().data_ptr() for b in blocks} <= {
        p.untyped_storage().data_ptr() for p in net.parameters()
    }
    before = space.distance(net)
    assert before > 0
    assert space.project_(net) is net
    assert space.distance(net) == 0
    assert all(not block.any() for block in blocks)
    assert net.activations[0].shift == 0.7


def test_nothing_is_forgone_under_zero_padding_and_something_with_fill():
    net, *data = problem()
    V = radnet.compress(net).network
    space = radnet.InterpolatingSpace(net.widths)
    padded, filled = space.iota_2(V), radnet.widen(V, net.widths, fill=0.5, generator=torch.Generator().manual_seed(0))
    gradients(padded, data)
    gradients(filled, data)
    assert space.forgone(padded) == 0
    removed = space.forgone(filled)
    assert removed > 1e-3
    # first order: one small step loses eta |g|^2
    eta = 1e-6

    def loss(n):
        return float((n(data[0]) - data[1]).square().mean().detach())

    make = lambda p: torch.optim.SGD(p, lr=eta)  # noqa: E731
    lost = loss(descend(filled, data, 1, make, projected=True)) - loss(descend(filled, data, 1, make))
    assert lost == pytest.approx(eta * removed**2, rel=1e-2)


# --- the optimizer's manners


def test_schedulers_closures_and_groups_work_through_the_wrapper():
    net, *data = problem()
    T = radnet.compress(net).transformed()
    inner = torch.optim.SGD([{"params": list(T.weights)}, {"params": list(T.biases), "lr": 0.5}], lr=0.1)
    opt = radnet.ProjectedOptimizer(inner, T)
    assert isinstance(opt, torch.optim.Optimizer)
    opt.add_param_group({"params": [rho.shift for rho in T.activations[:-1]]})
    assert len(opt.param_groups) == 3
    scheduler = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.1)

    def closure():
        opt.zero_grad()
        loss = (T(data[0]) - data[1]).square().mean()
        loss.backward()
        return loss

    assert float(opt.step(closure).detach()) > 0
    scheduler.step()
    assert [group["lr"] for group in inner.param_groups] == pytest.approx([0.01, 0.05, 0.01])
    assert radnet.InterpolatingSpace(T.widths).contains(T)
    assert "SGD" in repr(opt)


def test_state_survives_a_round_trip_and_a_pickle():
    net, x, y = problem()
    T = radnet.compress(net).transformed()
    opt = radnet.ProjectedOptimizer(torch.optim.Adam(T.parameters(), lr=0.01), T)

    def step(network, optimizer):
        optimizer.zero_grad()
        (network(x) - y).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step(T, opt)
    twin = copy.deepcopy(T)
    twin_opt = radnet.ProjectedOptimizer(torch.optim.Adam(twin.parameters(), lr=0.5), twin)
    twin_opt.load_state_dict(copy.deepcopy(opt.state_dict()))
    both = pickle.loads(pickle.dumps((T, opt)))
    for _ in range(3):
        step(T, opt)
        step(twin, twin_opt)
        step(both[1].network, both[1])
    assert distance(T, twin) == 0
    assert distance(T, both[1].network) == 0
    assert len(opt.state) == len(list(T.parameters()))


def test_bad_input_is_refused_with_a_reason():
    net, *_ = problem()
    T = radnet.compress(net).transformed()
    other = copy.deepcopy(T)
    space = radnet.InterpolatingSpace(net.widths)
    state = copy.deepcopy(net.state_dict())
    cases = [
        (
            lambda: radnet.ProjectedOptimizer(SGD(other.parameters()), T),
            ValueError,
            r"group 0 holds a parameter of shape \(6, 2\) that is not one of this network",
        ),
        (
            lambda: radnet.ProjectedOptimizer(SGD(net.parameters()), net),
            ValueError,
            r"not in .* norm \d.*space\.project_",
        ),
        (lambda: radnet.ProjectedOptimizer(T, T), TypeError, "wraps a torch optimizer, got RadNet"),
        (lambda: radnet.ProjectedOptimizer(SGD(T.parameters()), None), TypeError, "needs a RadNet, got NoneType"),
        (lambda: space.contains(radnet.RadNet((2, 6, 1))), ValueError, r"expected a network of widths \(2, 6, 7, 1\)"),
        (lambda: space.contains(radnet.RadNet((2, 6, 7, 1), bias=False)), ValueError, "got .* with bias=False"),
        (lambda: space.project_(torch.nn.Linear(1, 1)), TypeError, "needs a RadNet, got Linear"),
        (lambda: space.iota_1(net), ValueError, "not in the interpolating space"),
        (lambda: space.iota_2(net), ValueError, r"expected a network of widths \(2, 3, 4, 1\)"),
        (lambda: space.forgone(copy.deepcopy(net)), ValueError, "layers.0.weight has no gradient; call loss.backward"),
        (lambda: radnet.InterpolatingSpace((1, 0)), ValueError, "entry 1 is 0"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message) as caught:
            call()
        assert isinstance(caught.value, radnet.RadNetError)
    opt = radnet.ProjectedOptimizer(SGD(T.weights), T)
    with pytest.raises(ValueError, match="group 1 holds a parameter"):
        opt.add_param_group({"params": [other.biases[0]]})
    assert len(opt.param_groups) == 1
    assert all(torch.equal(state[k], v) for k, v in net.state_dict().items())


def test_scale_free_profiles_conserve_the_norm_of_their_layer(generator):
    """h = 1: the loss does not see the scale of A_i, so its gradient is orthogonal to A_i and |A_i|^2 is conserved."""
    rho = radnet.Radial(torch.ones_like)
    net = radnet.RadNet((2, 5, 6, 1), rho, init="linear", generator=generator, dtype=torch.float64)
    x = torch.randn(20, 2, generator=generator, dtype=torch.float64)
    data = (x, x.square().sum(1, keepdim=True))
    for A, G in list(zip(net.merged(), gradients(net, data), strict=True))[:-1]:
        assert abs(float((A.detach() * G).sum())) < 1e-13 * float(A.detach().norm() * G.norm())
    # flow: halving the step halves the drift of |A|^2, which is of second order in the step
    drifts = []
    for steps, eta in ((50, 1e-3), (100, 5e-4)):
        end = descend(net, data, steps, lambda p, eta=eta: torch.optim.SGD(p, lr=eta))
        drifts.append(float((end.merged()[0].norm() ** 2 - net.merged()[0].norm() ** 2).detach()))
    assert drifts[1] == pytest.approx(drifts[0] / 2, rel=0.05)
    # a profile that does see the scale conserves nothing of the kind
    other, *others_data = problem("squash")
    A, G = other.merged()[0].detach(), gradients(other, others_data)[0]
    assert abs(float((A * G).sum())) > 1e-3 * float(A.norm() * G.norm())
