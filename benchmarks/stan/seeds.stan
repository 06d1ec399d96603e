// Crowder (1978), the seeds of the BUGS manual: germination by type of seed and root extract.
data {
  int<lower=1> n;
  array[n] int<lower=0> N, y;
  matrix[n, 4] X;
}
parameters {
  vector[4] beta;
  real<lower=0> sd;
  vector[n] z;
}
model {
  beta ~ normal(0, 2);
  sd ~ normal(0, 1);
  z ~ std_normal();
  y ~ binomial_logit(N, X * beta + sd * z);
}
