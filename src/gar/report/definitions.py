"""The meaning of every number on the page by its label in small letters, shown on hover. `pass@k` is for any k."""

DEFINITIONS = {
    "pass@k": "The chance that at least one of k responses to a problem is right and in format, estimated without bias "
    "from all its samples (Chen et al. 2021). The mean over the problems of a set. Two numbers: before and after "
    "training.",
    "before": "Measured on the same problems, with the same seed of sampling, before the first step.",
    "after": "Measured after the last step.",
    "reference": "The first group of runs, after training.",
    "these runs": "The runs that are compared with the reference, after training.",
    "difference": "The second value minus the first, as pass@k: +0.100 is ten more problems in a hundred.",
    "95% interval": "95% bootstrap interval of the difference, over problems and, if there are several, over seeds. "
    "With few seeds it is too narrow, so the test decides. Empty if all differences are equal.",
    "p": "Probability of a difference this large if the two were equal: a paired t-test over seeds, or for a single "
    "run a sign-flip test over problems. Corrected by Holm for all tests of one k in this report.",
    "detectable": "The true difference that this test detects with 80% power, for this many pairs and this spread. "
    "Smaller differences may exist and go unseen.",
    "verdict": "From the corrected p-value, at level 0.05. 'No difference shown' does not mean that there is none.",
    "seeds": "Number of runs that differ only in their seed. A pair is one seed, in both groups.",
    "seed": "Decides the order of the problems and all sampling of a run.",
    "problems": "Number of problems in the set.",
    "steps": "Optimizer steps that were logged.",
    "rollouts": "Recorded responses, one row each in the rollouts folder.",
    "right": "Share of responses that are verified and keep the format. Two numbers: in the first and the last tenth "
    "of the steps.",
    "alignment": "Cosine between the gradient-activation vectors of a response and the expert solution: 1 if the "
    "vectors point the same way, 0 if they are orthogonal. Means are over the right responses that were scored. Two "
    "numbers: in the first and the last tenth of the steps.",
    "alignment spread": "The alignments of all recorded right responses, in up to 40 windows of steps. The line is "
    "the median, the dark band the central half, the light band the central 80%. In a wide band right responses "
    "differ, and the bonus separates them. If both bands are equally wide, the alignments are at two ends. Shown for "
    "the first seed of each group of runs.",
    "zero-std groups": "In a zero-std group all rewards are equal, so nothing is learned from it. The first number "
    "and the dashed line count them by the outcome only. The second number and the solid line include GAR's bonus. "
    "Between the lines are the groups that gain a signal from the bonus.",
    "seconds per step": "Median wall time of an optimizer step, generation and scoring included.",
    "gar’s share": "GAR's share of that time: forward passes for vectors.",
    "reward": "Base reward if right and in format, plus penalty, plus bonus.",
    "bonus": "What alignment adds to the reward: beta times the part of the alignment above the mean of its group.",
    "advantage": "The reward after normalization in its group: above 0 the response is made more likely. A mean size "
    "of 0 means that nothing is learned.",
    "tokens": "Tokens of the response, end token included.",
    "scored tokens": "Tokens that enter the gradient-activation vector.",
    "signal norm": "Length of the gradient-activation vector before it is scaled to one.",
    "entropy": "Mean entropy of the policy over the next token.",
    "gradient norm": "Norm of the gradient of the loss, before clipping.",
    "token share": "What the token adds to the alignment. The shares of all scored tokens sum to it.",
    "outcome": "What happened to a problem of an evaluation set. Lost: fewer samples are right after training than "
    "before. Gained: more. Never solved: no sample is right, before or after. Unchanged: as many as before.",
    "verdict of a response": "right: verified and in format. right, not in format: only verified. Otherwise how "
    "verification ended. Unparsed, timeout and error are no judgment of the answer. Such a response is not eligible, "
    "and counts apart from wrong answers.",
    "config hash": "SHA-256 of the resolved settings. Equal hashes mean equal settings.",
    "data hash": "Checksum of the training problems with their expert solutions.",
}
