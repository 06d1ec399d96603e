// Stochastic volatility, non-centered, as in Stan's user's guide.
data {
  int<lower=1> n;
  vector[n] y;
}
parameters {
  real level;
  real<lower=0, upper=1> persistence;
  real<lower=0> sigma;
  vector[n] z;
}
model {
  real rho = 2 * persistence - 1;
  vector[n] x = sigma * z;
  x[1] /= sqrt(1 - square(rho));
  for (t in 2:n) x[t] += rho * x[t - 1];
  level ~ normal(0, 2);
  persistence ~ beta(20, 1.5);
  sigma ~ normal(0, 1);
  z ~ std_normal();
  y ~ normal(0, exp((level + x) / 2));
}
