// Stochastic volatility, centered, as in Stan's user's guide.
data {
  int<lower=1> n;
  vector[n] y;
}
parameters {
  real level;
  real<lower=0, upper=1> persistence;
  real<lower=0> sigma;
  vector[n] h;
}
model {
  real rho = 2 * persistence - 1;
  level ~ normal(0, 2);
  persistence ~ beta(20, 1.5);
  sigma ~ normal(0, 1);
  h[1] ~ normal(level, sigma / sqrt(1 - square(rho)));
  h[2:n] ~ normal(level + rho * (h[1:(n - 1)] - level), sigma);
  y ~ normal(0, exp(h / 2));
}
