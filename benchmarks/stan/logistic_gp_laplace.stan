// The same as logistic_gp.stan with f integrated out by Laplace's approximation: not exact.
functions {
  matrix K(array[] vector X, real sigma, vector length) {
    return add_diag(gp_exp_quad_cov(X, sqrt(sigma), to_array_1d(length)), 1e-6);
  }
}
data {
  int<lower=1> n, d;
  array[n] vector[d] X;
  array[n] int<lower=0> y;
}
transformed data {
  array[n] int row;
  for (i in 1:n) row[i] = i;
}
parameters {
  real<lower=0> sigma;
  vector<lower=0>[d] length;
}
model {
  sigma ~ inv_gamma(1, 1);
  length ~ gamma(1, 1);
  target += laplace_marginal_bernoulli_logit_lpmf(y | row, rep_vector(0, n), 1, K, (X, sigma, length));
}
