// Item response with two parameters for each item, as in Stan's case study.
data {
  int<lower=1> n, persons, items;
  array[n] int<lower=1> person, item;
  array[n] int<lower=0, upper=1> y;
}
parameters {
  vector<lower=0>[items] a;
  vector[items] b;
  vector[persons] ability;
}
model {
  a ~ lognormal(0, 0.5);
  b ~ normal(0, 2);
  ability ~ std_normal();
  y ~ bernoulli_logit(a[item] .* (ability[person] - b[item]));
}
