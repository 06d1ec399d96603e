// Scores of children in schools: correlated levels and slopes, non-centered, with a Cholesky factor.
data {
  int<lower=1> n, children, schools;
  array[n] int<lower=1> child, school;
  vector[n] year, poor, y;
}
parameters {
  vector[2] average, poverty;
  real<lower=0> noise;
  vector<lower=0>[2] child_stds, school_stds;
  cholesky_factor_corr[2] L_child, L_school;
  matrix[2, children] z_child;
  matrix[2, schools] z_school;
}
transformed parameters {
  real child_rho = L_child[2, 1], school_rho = L_school[2, 1];
}
model {
  matrix[children, 2] of_child = (diag_pre_multiply(child_stds, L_child) * z_child)';
  matrix[schools, 2] of_school = (diag_pre_multiply(school_stds, L_school) * z_school)';
  average ~ normal(0, 2);
  poverty ~ normal(0, 1);
  noise ~ normal(0, 1);
  child_stds ~ normal(0, 1);
  school_stds ~ normal(0, 1);
  L_child ~ lkj_corr_cholesky(2);
  L_school ~ lkj_corr_cholesky(2);
  to_vector(z_child) ~ std_normal();
  to_vector(z_school) ~ std_normal();
  vector[n] level = average[1] + poor * poverty[1] + of_child[child, 1] + of_school[school, 1];
  vector[n] slope = average[2] + poor * poverty[2] + of_child[child, 2] + of_school[school, 2];
  y ~ normal(level + year .* slope, noise);
}
