"""The policy `bayesian`: a Gaussian process over the values of orders."""
