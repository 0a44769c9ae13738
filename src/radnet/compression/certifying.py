"""Asks the judge about a smaller model, and words the refusal if it is not the same function."""

from __future__ import annotations

import torch
from torch import nn

from ..activations import Radial
from ..errors import InvalidType, InvalidValue, RadNetError
from ..network import RadNet
from ..running import Call, Ran, copied, run
from ..surroundings import is_own
from .judging.certificate import Certificate
from .judging.explored import Explored
from .judging.exploring import Explorer
from .judging.given import does_not_run
from .judging.judge import judge


def certified(
    model: nn.Module,
    wide: nn.Module,
    small: nn.Module,
    explored: Explored,
    tol: float | None,
    generator: torch.Generator,
    as_stored: Ran | None = None,
) -> Certificate:
    """The certificate of a smaller model; nothing that is not the same function gets away without a tolerance."""
    name = type(model).__name__
    try:
        certificate = judge(
            model, wide, explored.given.call, shipped=small, explored=explored, as_stored=as_stored, generator=generator
        )
    except Exception as error:
        raise InvalidValue(
            f"{name}: the smaller model does not run ({error}); its forward relies on the width of a hidden layer in a "
            "way that cannot be seen by tracing it once. Nothing was changed"
        ) from error
    overflows = isinstance(model, RadNet) and not certificate.failures  # F itself is not finite; it is told, not hidden
    if certificate.lossless or tol is not None or (overflows and certificate.rows_judged):
        return certificate
    if certificate.rows_judged == 0 and _only_not_finite(explored):
        raise InvalidValue(
            f"{name}: it gives nothing but NaN and infinite values, so there is nothing to compare; give other "
            "example_inputs. Nothing was changed"
        )
    if certificate.rows_judged == 0:
        raise InvalidValue(
            f"{name}: every input lies at a jump of an activation, where no two runs need agree; give other "
            "example_inputs. Nothing was changed"
        )
    if not certificate.rows_failed and certificate.rows_at_jump > certificate.rows / 2:
        raise InvalidValue(f"{name}: {certificate.failures[0]}; give other example_inputs. Nothing was changed")
    raise InvalidValue(
        f"{name}: the smaller model does not give the same outputs ({certificate.rows_failed} of {certificate.rows} "
        f"rows differ, by {certificate.max_gap64:.3g}; {'; '.join(certificate.failures[:1])}); its forward does "
        "something that cannot be seen by tracing it once. Nothing was changed"
    )


def _only_not_finite(explored: Explored) -> bool:
    return not any(bool(x.isfinite().any()) for x in explored.given.ran.tensors.values())


def explored_chain(explorer: Explorer, network: RadNet, call: Call) -> Explored:
    """What is found out about a `RadNet`; only profiles of the user's own may hide something."""
    ours = all(not is_own(type(rho).__module__) and not isinstance(rho, Radial) for rho in network.rescalings)
    try:
        return explorer.explore_chain(call) if ours else explorer.explore(call)
    except InvalidValue:
        raise
    except Exception as error:
        raise does_not_run(explorer.model, call, error) from error


def run_as_stored(model: nn.Module, call: Call) -> Ran:
    """What the model gives in its own dtype."""
    try:
        found = run(copied(model, torch.clone), call)
    except RadNetError:
        raise
    except Exception as error:
        raise does_not_run(model, call, error) from error
    if not any(x.is_floating_point() or x.is_complex() for x in found.tensors.values()):
        raise InvalidType(f"{type(model).__name__} gives no floating-point tensor; there is nothing to compare")
    return found
