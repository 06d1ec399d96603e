# %% [markdown]
# # What would you do? Item response
#
# A bus does not stop for you. Would you want to curse? Would you? 316 students answered 24 such
# questions with no, perhaps or yes. Which students are quick to anger, and which reactions are
# easily admitted? Item response theory puts persons and items on one scale.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_lgm as lgm

answers = lgm.datasets.load_verbal_aggression()
items = list(answers.columns[2:])
person, item = (each.ravel() for each in np.indices((316, 24)))
y = answers[items].to_numpy().ravel()
print({name: int(np.sum(y == k)) for k, name in enumerate(("no", "perhaps", "yes"))})

# %% [markdown]
# ## The model
#
# An answer is an ordered category of a latent score f plus noise:
#
#     f = beta (features of person and item) + person + item
#
# The features of an item are what it asks (curse, scold or shout; want or do; whose fault). Those
# of a student are sex and the score of an anger test. Each item and each student also has an
# effect, for what the features do not explain. The 346 effects and coefficients are one Gaussian
# vector with a sparse precision matrix, which is integrated out. Two standard deviations and two
# cutpoints remain.

# %%
words = [name.split("_") for name in items]
features = {
    "do, not want": [does == "do" for _, does, _ in words],
    "scold, not curse": [what == "scold" for *_, what in words],
    "shout, not curse": [what == "shout" for *_, what in words],
    "my own fault": [where in ("store", "operator") for where, *_ in words],
}
features_of_item = np.column_stack(list(features.values())).astype(float)
anger = answers["anger"].to_numpy()
anger = (anger - anger.mean()) / anger.std()
male = answers["male"].to_numpy()
X = np.column_stack([features_of_item[item], anger[person], male[person]])
names = [*features, "anger, 1 sd", "man"]

with pm.Model(
    coords={"feature": names, "item": items, "cut": ["no|perhaps", "perhaps|yes"]}
) as model:
    beta = pm.Normal("beta", 0, 1, dims="feature")
    person_sd = pm.HalfNormal("person_sd", 1)
    item_sd = pm.HalfNormal("item_sd", 1)
    of_person = pm.Normal("of_person", 0, person_sd, shape=316)
    of_item = pm.Normal("of_item", 0, item_sd, dims="item")
    ordered = pm.distributions.transforms.ordered
    cutpoints = pm.Normal("cutpoints", [-0.5, 0.5], 2, transform=ordered, dims="cut")
    f = pm.math.dot(X, beta) + of_person[person] + of_item[item]
    lgm.OrdinalProbit("answer", f=f, cutpoints=cutpoints, observed=y)
    idata = pm.sample(
        1200, tune=400, chains=2, cores=2, step=lgm.PseudoMarginal(), random_seed=1,
        progressbar=False,
    )  # fmt: skip
print(az.summary(idata, var_names=["beta", "person_sd", "item_sd", "cutpoints"]))

# %% [markdown]
# The unit is the standard deviation of the noise of an answer. Doing is admitted less easily than
# wanting, shouting less easily than cursing, and students are calmer if the fault was their own.
# `person_sd` is the standard deviation of students that sex and the anger test do not explain.
#
# ## Persons and items on one scale

# %%
posterior, bands = idata["posterior"], ("chain", "draw")
known = posterior["beta"][..., 4:].to_numpy() @ np.column_stack([anger, male]).T
student = posterior["of_person"].to_numpy() + known
ease = posterior["of_item"].to_numpy() + posterior["beta"][..., :4].to_numpy() @ features_of_item.T
low, median, high = np.quantile(ease, [0.05, 0.5, 0.95], axis=(0, 1))
order = np.argsort(median)
cut = posterior["cutpoints"].mean(bands).to_numpy() - ease.mean()  # of an average item

figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 5.5), layout="constrained", width_ratios=[1.2, 1]
)
colors = {"curse": "C3", "scold": "C0", "shout": "C2"}
for place, i in enumerate(order):
    color = colors[words[i][2]]
    left.hlines(place, low[i], high[i], color=color, lw=3, alpha=0.4)
    left.plot(median[i], place, "o" if words[i][1] == "do" else "s", color=color, ms=5)
left.set_yticks(range(24), [" ".join(words[i]) for i in order])
left.set(
    title="Items (squares: want, dots: do) and 90 % bands",
    xlabel="how easily admitted / noise of an answer",
)
low, median, high = np.quantile(student, [0.05, 0.5, 0.95], axis=(0, 1))
rank = np.argsort(median)
right.fill_between(range(316), low[rank], high[rank], alpha=0.3, lw=0)
right.plot(median[rank], lw=1.5)
for at, said in zip(cut, ("perhaps", "yes"), strict=True):
    right.axhline(at, color="0.4", ls=":")
    right.annotate(f"above: {said} to an average item", (5, at + 0.05))
_ = right.set(title="Students, in order, and 90 % band", xlabel="rank")

# %% tags=["remove-cell"]
# As a script, `python examples/aggression.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# An item is known well, because 316 students answered it. A student answered only 24 items, so the
# band of one student spans about half of all students: the order of neighbors in rank means
# nothing.

# %%
one, other = rank[143], rank[173]
below = (student[..., one] < student[..., other]).mean()
print(f"two students thirty ranks apart are in this order with probability {below:.2f}")
explained = known.var(axis=-1).mean()
rest = (posterior["person_sd"] ** 2).mean().item()
share = explained / (explained + rest)
print(f"sex and the test explain {share:.0%} of the variance of students")

# %% [markdown]
# ## What next
#
# - Answers right or wrong: `pm.Bernoulli` of the same sum is the Rasch model.
# - Items that discriminate differently multiply the effect of the person by a discrimination, which
#   is a hyper-parameter. With more than twelve hyper-parameters theta moves by NUTS.
# - Growth of persons over time: [How fast do children learn?](children).
