// McGilchrist and Aisbett (1991), the kidneys of the BUGS manual: Weibull times with frailties.
data {
  int<lower=1> n, patients;
  array[n] int<lower=1> patient;
  matrix[n, 6] X;
  vector<lower=0>[n] y;
  array[n] int<lower=0, upper=1> infected;
}
parameters {
  vector[6] beta;
  real<lower=0> shape;
  real<lower=0> sd;
  vector[patients] z;
}
model {
  vector[patients] b = sd * z;
  vector[n] scale = exp(-(X * beta + b[patient]) / shape);
  beta ~ normal(0, 2);
  shape ~ lognormal(0, 0.5);
  sd ~ normal(0, 1);
  z ~ std_normal();
  for (i in 1:n) {
    if (infected[i]) y[i] ~ weibull(shape, scale[i]);
    else target += weibull_lccdf(y[i] | shape, scale[i]);
  }
}
