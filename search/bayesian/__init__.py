"""Policy `bayesian`: Bayesian optimisation of the value with a Gaussian process over orders."""
