// Counts: a Gaussian process with a length-scale for each input, whitened.
data {
  int<lower=1> n, d;
  array[n] vector[d] X;
  array[n] int<lower=0> y;
}
parameters {
  real<lower=0> sigma;
  vector<lower=0>[d] length;
  vector[n] z;
}
model {
  matrix[n, n] K = gp_exp_quad_cov(X, sqrt(sigma), to_array_1d(length));
  sigma ~ inv_gamma(1, 1);
  length ~ gamma(1, 1);
  z ~ std_normal();
  y ~ poisson_log(cholesky_decompose(add_diag(K, 1e-6)) * z);
}
