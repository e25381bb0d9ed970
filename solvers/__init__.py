"""The placement problem as data, and the solvers that take it to a solution with a proven bound."""
