// Thall and Vail (1990), the seizures of the BUGS manual: effects of patients and of visits.
data {
  int<lower=1> n, patients;
  array[n] int<lower=1> patient;
  matrix[n, 6] X;
  array[n] int<lower=0> y;
}
parameters {
  vector[6] beta;
  vector<lower=0>[2] sd;
  vector[patients] zu;
  vector[n] zv;
}
model {
  vector[patients] u = sd[1] * zu;
  beta ~ normal(0, 2);
  sd ~ normal(0, 1);
  zu ~ std_normal();
  zv ~ std_normal();
  y ~ poisson_log(X * beta + u[patient] + sd[2] * zv);
}
