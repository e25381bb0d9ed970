"""The linear system of one interior-point step, factored layer by layer."""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from placer.solvers.layer_view import Float64s
from placer.solvers.variables import Rows, Variables


class NormalEquations:
    """Factor A diag(theta) A^T for the rows A of a relaxed program.

    The matrix is one block per layer, bordered by the budget row. Within a layer it is

        rows diag(theta_x) rows^T + T,    T: what over, under and mix add, 2 x 2 per layer-step.

    With fewer rows than experts the block itself is factored; otherwise (many steps) the inverse comes
    from the experts' side, diag(1 / theta_x) + rows^T T^-1 rows (Woodbury), whose size is E.

    Raises
    ------
    scipy.linalg.LinAlgError
        When a block is numerically not positive definite.
    """

    def __init__(self, space: Variables, theta: Float64s) -> None:
        self._space = space
        L, S, E, R = space.layers, space.steps, space.experts, space.row_count
        rows = space.program.rows
        self._theta_x = theta[space.x].reshape(L, E)
        first = (theta[space.over] + theta[space.under]).reshape(L, S)
        cross = np.zeros((L, S))
        second = np.zeros((L, S))
        if space.has_columns:
            mix = theta[space.mix].reshape(L, S, space.columns)
            gain, count = space.column_gain_us, space.column_count
            # The row sum_j mix = 1 touches nothing else and is eliminated first.
            self._one = mix.sum(axis=2)
            self._one_gain = (mix * gain).sum(axis=2) / self._one
            self._one_count = -(mix * count).sum(axis=2) / self._one
            gain = gain - self._one_gain[:, :, None]
            count = count + self._one_count[:, :, None]
            first = first + (mix * gain * gain).sum(axis=2)
            cross = -(mix * gain * count).sum(axis=2)
            second = (mix * count * count).sum(axis=2)
        self._first, self._cross = first, cross
        self._second = second + 1e-10 * (second.max(initial=0.0) + 1e-30) if space.has_columns else second
        self._last = theta[space.count] if space.limited else np.zeros(L)

        self._by_experts = R > E
        if self._by_experts:
            scaled = self._whitened(rows)
            blocks = np.matmul(scaled.transpose(0, 2, 1), scaled)
            diagonal = np.arange(E)
            blocks[:, diagonal, diagonal] += 1.0 / self._theta_x
        else:
            scaled = rows * np.sqrt(self._theta_x)[:, None, :]
            blocks = np.matmul(scaled, scaled.transpose(0, 2, 1))
            step = np.arange(S)
            blocks[:, step, step] += self._first
            if space.has_columns:
                blocks[:, S + step, S + step] += self._second
                blocks[:, step, S + step] += self._cross
                blocks[:, S + step, step] += self._cross
            if space.limited:
                blocks[:, -1, -1] += self._last
            diagonal = np.arange(R)
            # Rows that touch no open expert would leave a zero on the diagonal.
            blocks[:, diagonal, diagonal] *= 1 + 1e-13
            blocks[:, diagonal, diagonal] += 1e-30
        self._factors = [
            cho_factor(block, lower=True, overwrite_a=True, check_finite=False) for block in blocks
        ]

        if space.program.room is not None:
            sized = self._theta_x * space.free * space.program.size[:, None]
            self._border = np.matmul(rows, sized[:, :, None])[:, :, 0]
            self._bordered = self._solve_layers(self._border)
            corner = float((sized * space.program.size[:, None]).sum() + theta[space.spare][0])
            self._schur = corner - float((self._border * self._bordered).sum())

    def solve(self, right: Rows) -> Rows:
        """Solve for one right-hand side."""
        space = self._space
        S = space.steps
        known = self._without_total(right)
        main = self._solve_layers(known)
        budget = 0.0
        if space.program.room is not None:
            budget = (right.budget - float((self._bordered * known).sum())) / self._schur
            main = main - self._bordered * budget
        total = np.zeros_like(right.total)
        if space.has_columns:
            total = (
                right.total / self._one - self._one_gain * main[:, :S] - self._one_count * main[:, S : 2 * S]
            )
        return Rows(main, total, budget)

    def _without_total(self, right: Rows) -> Float64s:
        """The main part with the eliminated rows taken out."""
        main = right.main.copy()
        if self._space.has_columns:
            S = self._space.steps
            main[:, :S] -= self._one_gain * right.total
            main[:, S : 2 * S] -= self._one_count * right.total
        return main

    def _solve_layers(self, right: Float64s) -> Float64s:
        if not self._by_experts:
            return np.stack(
                [
                    cho_solve(factor, one, check_finite=False)
                    for factor, one in zip(self._factors, right, strict=True)
                ]
            )
        rows = self._space.program.rows
        direct = self._inverse_local(right)
        experts = np.matmul(direct[:, None, :], rows)[:, 0, :]
        inner = np.stack(
            [
                cho_solve(factor, one, check_finite=False)
                for factor, one in zip(self._factors, experts, strict=True)
            ]
        )
        return direct - self._inverse_local(np.matmul(rows, inner[:, :, None])[:, :, 0])

    def _inverse_local(self, right: Float64s) -> Float64s:
        """T^-1 times ``right`` [L, R]."""
        space = self._space
        S = space.steps
        result = np.empty_like(right)
        if space.has_columns:
            determinant = self._first * self._second - self._cross**2
            one, two = right[:, :S], right[:, S : 2 * S]
            result[:, :S] = (self._second * one - self._cross * two) / determinant
            result[:, S : 2 * S] = (self._first * two - self._cross * one) / determinant
        else:
            result[:, :S] = right[:, :S] / self._first
        if space.limited:
            result[:, -1] = right[:, -1] / self._last
        return result

    def _whitened(self, rows: Float64s) -> Float64s:
        """F rows with F^T F = T^-1, so that the experts' matrix is a plain product."""
        space = self._space
        S = space.steps
        result = np.empty_like(rows)
        if space.has_columns:
            determinant = self._first * self._second - self._cross**2
            # T^-1 = [[c, -b], [-b, a]] / det = F^T F with F upper triangular.
            second = self._first / determinant
            corner = np.sqrt(second)
            slope = -(self._cross / determinant) / corner
            rest = np.sqrt(np.maximum(self._second / determinant - slope**2, 0.0))
            result[:, :S] = rest[:, :, None] * rows[:, :S]
            result[:, S : 2 * S] = slope[:, :, None] * rows[:, :S] + corner[:, :, None] * rows[:, S : 2 * S]
        else:
            result[:, :S] = rows[:, :S] / np.sqrt(self._first)[:, :, None]
        if space.limited:
            result[:, -1] = rows[:, -1] / np.sqrt(self._last)[:, None]
        return result
