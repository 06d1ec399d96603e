// The surgical example of the BUGS manual: deaths in twelve hospitals.
data {
  int<lower=1> n;
  array[n] int<lower=0> N, y;
}
parameters {
  real mu;
  real<lower=0> sd;
  vector[n] z;
}
model {
  mu ~ normal(0, 5);
  sd ~ normal(0, 1);
  z ~ std_normal();
  y ~ binomial_logit(N, mu + sd * z);
}
