"""What the two learners share: their parameters, what they check, how they fit, and what they give to other worlds."""

from __future__ import annotations

import abc
import numbers
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from ..activations import PerBlock
from ..compression import compress
from ..errors import InvalidValue
from ..export import export_c, export_onnx
from ..export.c import MOST_BYTES
from ..export.onnx import OPSET, OnnxExport
from ..models import BlockRadialMLP
from .arrays import Array, LayerArrays, Scales, arrays_of, forward, moved_inputs, network_of, with_scales
from .parameters import check_parameters, widths_of
from .training import (
    BATCH,
    FULL_BATCH,
    OPTIMIZERS,
    RATE,
    Plan,
    RowLoss,
    Rows,
    Trained,
    found_rate,
    steps_to_epochs,
    to_arrays,
    to_tensors,
    train,
)

#: rows below which none are held out
FEW = 200
#: row weights beyond it are scaled
HUGE = 1e100
#: rows that are predicted at once
AT_ONCE = 4096
Values = npt.ArrayLike


class RadialLearner(BaseEstimator, abc.ABC):  # type: ignore[misc]
    """Parameters, checks, training, and what is kept; a learner says what its targets, outputs and loss are."""

    def __init__(
        self,
        hidden: Sequence[int] = (96,),
        *,
        block_size: int | None = 3,
        profile: str = "sin",
        shift: str | float | None = "per_block",
        scale: str | float | None = None,
        optimizer: str = "adam",
        learning_rate: float | str = 0.01,
        schedule: str = "cosine",
        epochs: int | str = "auto",
        batch_size: int | str = "auto",
        weight_decay: float = 0.0,
        validation_fraction: float = 0.1,
        patience: int = 50,
        restarts: int = 1,
        compress: bool = True,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.hidden = hidden
        self.block_size = block_size
        self.profile = profile
        self.shift = shift
        self.scale = scale
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.epochs = epochs
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.restarts = restarts
        self.compress = compress
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    layers_: list[LayerArrays]
    loss_curve_: list[float]
    n_steps_: int
    _scales: Scales
    profile_: str
    _seen: float
    _stepped_by: str
    _moments: dict[int, dict[str, Array]] | None
    _made: dict[str, object]

    # --- what a learner says

    @abc.abstractmethod
    def _targets(self, y: Array, weight: Array, *, first: bool) -> tuple[Tensor, int, RowLoss]:
        """Targets as the network is trained on them, how many outputs it has, and the loss of a row."""

    def _take_in_targets(self, y: Array, weight: Array, share: float) -> None:
        """More targets have come, such a share of all so far."""

    def _output_scales(self) -> Scales | None:
        return None

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """What was fitted before stays if this does not come to its end; gradients are on in it."""
        before = dict(vars(self))
        try:
            with torch.inference_mode(False), torch.enable_grad():
                yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    # --- fitting

    def fit(self, X: Values, y: Values, sample_weight: Values | None = None) -> Self:
        """Train a network.

        Parameters
        ----------
        X : array-like of shape (rows, columns)
        y : array-like of shape (rows,) or (rows, outputs)
        sample_weight : array-like of shape (rows,), optional
            How much each row counts; one with 0 counts as if it were not there.

        Returns
        -------
        self
        """
        with self._all_or_nothing():
            return self._fitted(X, y, sample_weight)

    def _fitted(self, X: Values, y: Values, sample_weight: Values | None) -> Self:
        check_parameters(type(self).__name__, self.get_params(deep=False))
        goes_on = bool(self.warm_start) and self._is_there()
        table, targets, weight = self._rows(X, y, sample_weight, reset=not goes_on)
        rows, outputs, loss = self._prepared(table, targets, weight, first=not goes_on)
        random = check_random_state(self.random_state)
        generators = [
            torch.Generator().manual_seed(int(random.randint(2**31 - 1)))
            for _ in range(1 if goes_on else self.restarts)
        ]
        inside, outside = self._divided(rows, generators[0])
        found: list[tuple[Trained, Plan]] = []
        for generator in generators:
            net = self._network() if goes_on else self._fresh(rows.x.shape[1], outputs, generator, rows.x.dtype)
            plan = self._plan(net, inside, loss, held_out=outside is not None)
            found.append((train(net, inside, outside, loss, plan, generator), plan))
        best, plan = min(found, key=lambda pair: pair[0].score)
        self._keep(best, plan)
        self._moments, self._seen = None, float(weight.sum())
        W = self.layers_[0]["weight"]  # of a column that never changed nothing was learned
        self.layers_[0]["weight"] = np.where(self._scales.size > 0, W, W.dtype.type(0))
        if self.compress:
            self._compress(rows.x[:256])
        return self

    def _partial(self, X: Array, y: Array, weight: Array, *, first: bool) -> Self:
        """One pass over some rows, from where the network stands; the scales are those of all rows so far."""
        total = float(weight.sum())
        if not first:
            share = total / (self._seen + total)
            new = self._scales.joined(Scales.of(X.astype(np.float64), weight), share)
            self.layers_, self._scales = moved_inputs(self.layers_, self._scales, new), new
            self._take_in_targets(y, weight, share)
        rows, outputs, loss = self._prepared(X, y, weight, first=first)
        if first:
            random = check_random_state(self.random_state)
            generator = torch.Generator().manual_seed(int(random.randint(2**31 - 1)))
            net = self._fresh(X.shape[1], outputs, generator, rows.x.dtype)
        else:
            generator = torch.Generator().manual_seed(self.n_steps_)
            net = self._network()
        rate = self.learning_rate if isinstance(self.learning_rate, numbers.Real) else RATE
        plan = Plan(self.optimizer, float(rate), "constant", 1, self._batch(len(rows)), self.weight_decay, 1, False)
        same = not first and self._moments is not None and self._stepped_by == self.optimizer
        moments = to_tensors(self._moments) if same and self._moments is not None else None
        trained = train(net, rows, None, loss, plan, generator, moments)
        steps = 1 + (0 if first else self.n_steps_)
        curve = [] if first else self.loss_curve_
        self._keep(trained, plan)
        self.n_steps_, self.loss_curve_ = steps, [*curve, *trained.losses]
        self._moments, self._stepped_by = to_arrays(trained.moments), self.optimizer
        self._seen = total + (0.0 if first else self._seen)
        return self

    def _rows(self, X: Values, y: Values, sample_weight: Values | None, *, reset: bool) -> tuple[Array, Array, Array]:
        """What was given, as arrays of finite numbers without the rows that do not count."""
        several = self.__sklearn_tags__().target_tags.multi_output
        table: Array
        targets: Array
        table, targets = validate_data(
            self, X, y, reset=reset, multi_output=several, dtype=(np.float64, np.float32), ensure_all_finite=False
        )
        self._check_finite(table)
        if sample_weight is not None and not np.any(np.asarray(sample_weight)):
            raise InvalidValue("sample_weight: all weights are zero, so no row is left to learn from")
        weight: Array = _check_sample_weight(sample_weight, table, dtype=np.float64, ensure_non_negative=True)
        counts = weight > 0
        largest = float(weight.max())
        unit = 1.0 if 1 / HUGE < largest < HUGE else largest  # so that they can be added up
        return table[counts], targets[counts], weight[counts] / unit

    def _check_finite(self, X: Array) -> None:
        """Refuse NaN and infinite numbers, naming row and column."""
        bad = ~np.isfinite(X)
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            names = getattr(self, "feature_names_in_", None)
            where = f"column {column}" if names is None else f"column {names[column]!r}"
            what = "NaN" if np.isnan(X[row, column]) else "infinity"
            raise InvalidValue(f"Input X contains {what} at row {row}, {where}; impute or leave out such rows")

    def _prepared(self, X: Array, y: Array, weight: Array, *, first: bool) -> tuple[Rows, int, RowLoss]:
        targets, outputs, loss = self._targets(y, weight, first=first)
        if first:
            self._scales = Scales.of(X.astype(np.float64), weight)
        short = (X if first else self.layers_[0]["weight"]).dtype == np.float32
        dtype = torch.float32 if short else torch.float64
        x = torch.from_numpy((X - self._scales.mean) / self._scales.divisor).to(dtype)
        targets = targets.to(dtype) if targets.is_floating_point() else targets
        return Rows(x, targets, torch.from_numpy(weight / weight.mean()).to(dtype)), outputs, loss

    def _divided(self, rows: Rows, generator: torch.Generator) -> tuple[Rows, Rows | None]:
        """Rows to train on, and some that are held out; none of few."""
        aside = min(round(self.validation_fraction * len(rows)), len(rows) - 1) if len(rows) >= FEW else 0
        if aside == 0:
            return rows, None
        order = torch.randperm(len(rows), generator=generator)
        return rows[order[aside:]], rows[order[:aside]]

    def _fresh(self, n: int, outputs: int, generator: torch.Generator, dtype: torch.dtype) -> nn.Sequential:
        self.profile_, self._made = self.profile, self._architecture()
        hidden = [
            (width // (self.block_size or width), self.block_size or width)
            for width in widths_of(type(self).__name__, self.hidden, self.block_size)
        ]
        return BlockRadialMLP(
            n, hidden, outputs, profile=self.profile, shift=_setting(self.shift), scale=_setting(self.scale),
            generator=generator, dtype=dtype,
        )  # fmt: skip

    def _network(self) -> nn.Sequential:
        return network_of(self.layers_, self.profile_, trainable=True)

    def _batch(self, rows: int) -> int:
        if isinstance(self.batch_size, str):
            return rows if rows <= FULL_BATCH else BATCH
        return min(int(self.batch_size), rows)

    def _plan(self, net: nn.Module, rows: Rows, loss: RowLoss, *, held_out: bool) -> Plan:
        batch = self._batch(len(rows))
        epochs = steps_to_epochs(len(rows), batch) if isinstance(self.epochs, str) else int(self.epochs)
        rate = self.learning_rate
        if isinstance(rate, str):
            rate = found_rate(net, rows, loss, batch, OPTIMIZERS[self.optimizer])
        progress = None if self.verbose is None else bool(self.verbose)
        patience = int(self.patience) if held_out else epochs
        return Plan(
            self.optimizer, float(rate), self.schedule, epochs, batch, float(self.weight_decay), patience, progress
        )

    def _keep(self, trained: Trained, plan: Plan) -> None:
        self.layers_ = arrays_of(trained.net)
        self.loss_curve_ = trained.losses
        self.validation_curve_ = trained.validation
        self.loss_ = trained.score
        self.best_epoch_ = trained.best_epoch if trained.validation else len(trained.losses)
        self.n_iter_ = max(len(trained.losses), 1)
        self.n_steps_ = len(trained.losses)
        self.learning_rate_ = plan.rate
        self.certificate_: dict[str, object] | None = None

    def _compress(self, x: Tensor) -> None:
        """Blocks that are wider than what reaches them become as narrow; nothing is tried where none is."""
        wide, n = False, self.layers_[0]["weight"].shape[1]
        for layer in self.layers_[:-1]:
            rows, blocks = len(layer["weight"]), layer["blocks"] or 1
            count = blocks if isinstance(blocks, int) else len(blocks)
            wide, n = wide or rows // count > n + 1, rows
        if wide:
            c = compress(network_of(self.layers_, self.profile_).eval(), x)
            self.layers_ = arrays_of(c.network)
            self.certificate_ = c.certificate.for_file()

    def _architecture(self) -> dict[str, object]:
        """The parameters that say what the network looks like."""
        return {
            "hidden": widths_of(type(self).__name__, self.hidden, self.block_size),
            "block_size": self.block_size,
            "profile": self.profile,
            "shift": self.shift,
            "scale": self.scale,
        }

    def _is_there(self) -> bool:
        """Whether there is a network to go on from, which looks as the parameters say."""
        if not hasattr(self, "layers_"):
            return False
        now = self._architecture()
        if changed := [name for name, value in now.items() if self._made[name] != value]:
            raise InvalidValue(
                f"{type(self).__name__}: the network that is there has {changed[0]}={self._made[changed[0]]!r}, not "
                f"{now[changed[0]]!r}; clone the estimator, or fit it with warm_start=False"
            )
        return True

    # --- predicting

    def _outputs(self, X: Values) -> Array:
        """What the network gives for rows of numbers as they are."""
        check_is_fitted(self, "layers_")
        table: Array = validate_data(self, X, reset=False, dtype=(np.float64, np.float32), ensure_all_finite=False)
        if not np.isfinite(table).all():
            self._check_finite(table)
        own = self.layers_[0]["weight"].dtype
        with np.errstate(over="ignore"):
            x = ((table - self._scales.mean) / self._scales.divisor).astype(own, copy=False)
        parts = [x[i : i + AT_ONCE] for i in range(0, len(x), AT_ONCE)]
        out = np.concatenate([forward(self.layers_, self.profile_, part) for part in parts])
        finite = np.isfinite(out).all(axis=1)
        if not finite.all():
            out[~finite] = self._carefully(table[~finite])
        return out

    def _carefully(self, X: Array) -> Array:
        """Rows whose norms leave the range of the arrays, by the network in PyTorch and in float64."""
        x = np.clip((X.astype(np.float64) - self._scales.mean) / self._scales.divisor, -1e300, 1e300)
        with torch.no_grad():
            found: Array = network_of(self.layers_, self.profile_).double()(torch.from_numpy(x)).numpy()
        return np.nan_to_num(found)

    # --- elsewhere

    @property
    def n_parameters_(self) -> int:
        """Numbers in the weights, biases, shifts and scales that are kept."""
        check_is_fitted(self, "layers_")
        return sum(v.size for layer in self.layers_ for v in layer.values() if isinstance(v, np.ndarray))

    def to_torch(self) -> nn.Sequential:
        """The network as a module that takes rows as they are, in evaluation mode and in the dtype it was trained in.

        The scales of the columns are in its first and last layer. A classifier's module gives a number for each class,
        of which `predict_proba` is the softmax.
        """
        check_is_fitted(self, "layers_")
        net = network_of(with_scales(self.layers_, self._scales, self._output_scales()), self.profile_)
        return net.to(torch.from_numpy(self.layers_[0]["weight"][:0]).dtype).eval()

    def to_onnx(self, path: str | os.PathLike[str], *, opset: int = OPSET, weights: str | None = None) -> OnnxExport:
        """Write the network of `to_torch` as ONNX, compared in onnxruntime; as `radnet.export_onnx` does."""
        net = self.to_torch()
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(64, self.n_features_in_, generator=generator, dtype=torch.float64)
        rows = rows * torch.from_numpy(self._scales.divisor) + torch.from_numpy(self._scales.mean)
        return export_onnx(net, path, rows.to(net[0].weight.dtype), opset=opset, weights=weights)  # type: ignore[arg-type]

    def to_c(self, path: str | os.PathLike[str], *, name: str = "network", max_bytes: int = MOST_BYTES) -> int:
        """Write the network of `to_torch` as a C99 header, as `radnet.export.export_c` does; its bytes of weights."""
        return export_c(self.to_torch(), path, name=name, max_bytes=max_bytes)


def _setting(value: str | float | None) -> PerBlock:
    """A shift or scale; a number is the same for all blocks."""
    return float(value) if isinstance(value, numbers.Real) else value  # type: ignore[return-value]
