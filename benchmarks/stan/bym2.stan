// Areas with structured and unstructured effects, as in Stan's case study of ICAR models.
data {
  int<lower=1> n, edges;
  array[edges] int<lower=1> one, two;
  array[n] int<lower=0> y;
  vector<lower=0>[n] E;
  real<lower=0> s;
}
transformed data {
  vector[n] log_E = log(E);
}
parameters {
  real b0;
  real<lower=0> sigma;
  real<lower=0, upper=1> rho;
  vector[n] theta, phi;
}
model {
  b0 ~ normal(0, 5);
  sigma ~ normal(0, 1);
  rho ~ beta(0.5, 0.5);
  theta ~ std_normal();
  target += -0.5 * dot_self(phi[one] - phi[two]);
  sum(phi) ~ normal(0, 0.001 * n);
  y ~ poisson_log(log_E + b0 + sigma * (sqrt(1 - rho) * theta + sqrt(rho / s) * phi));
}
