"""Baselines and rivals that need a separate trainer: `gar train --plugin paper.methods --method NAME`.

    sft, sft-grpo      supervised fine-tuning on the expert solutions, alone or before grpo
    rft                supervised fine-tuning on the policy's own correct responses
    luffy, chord       the expert solution in the loss of grpo
    sdft, sdpo         the policy learns from itself with the expert solution in its prompt
    grad2reward        the outcome, spread over tokens by a frozen judge's gradients

Importing this registers them. Trainers are imported when a run begins.
"""

from gar.methods import register
from paper.methods.experts import CHORD, LUFFY
from paper.methods.grad2reward import GRAD2REWARD
from paper.methods.self_distillation import SDFT, SDPO
from paper.methods.supervised import RFT, SFT, SFT_GRPO

for method in (GRAD2REWARD, SFT, SFT_GRPO, RFT, LUFFY, CHORD, SDFT, SDPO):
    register(method)
