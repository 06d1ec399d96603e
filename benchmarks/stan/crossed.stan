// Counts with effects of rows and of columns.
data {
  int<lower=1> n, rows, columns;
  array[n] int<lower=1> i, j;
  array[n] int<lower=0> y;
}
parameters {
  real b;
  vector<lower=0>[2] sd;
  vector[rows] zu;
  vector[columns] zv;
}
model {
  vector[rows] u = sd[1] * zu;
  vector[columns] v = sd[2] * zv;
  b ~ normal(0, 2);
  sd ~ normal(0, 1);
  zu ~ std_normal();
  zv ~ std_normal();
  y ~ poisson_log(b + u[i] + v[j]);
}
