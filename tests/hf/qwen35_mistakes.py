"""Mistakes that no comparison of Qwen3.5's logits may overlook, made in the loaded parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.backend import AttentionWeights, DeltaWeights
from plugins.pegainfer_qwen35.tests.stepper import Stepper

if TYPE_CHECKING:
    from tests.hf.teacher_forced import Change, TeacherForced


def no_rope(model: TeacherForced) -> Change:
    rope = _stepper(model).model._rope
    return [rope.cos, rope.sin], [np.ones(1, np.float32), np.zeros(1, np.float32)]


def unit_head_norms(model: TeacherForced) -> Change:
    tensors = [mixer.head_norm for mixer in _mixers(model) if isinstance(mixer, AttentionWeights)]
    return tensors, [np.ones(1, np.float32)] * len(tensors)


def no_attention_in_a_layer(model: TeacherForced) -> Change:
    mixers = [mixer for mixer in _mixers(model) if isinstance(mixer, AttentionWeights)]
    return [mixers[len(mixers) // 2].out], [np.zeros(1, np.float32)]


def no_delta_rule_in_a_layer(model: TeacherForced) -> Change:
    mixers = [mixer for mixer in _mixers(model) if isinstance(mixer, DeltaWeights)]
    return [mixers[len(mixers) // 2].out], [np.zeros(1, np.float32)]


def no_decay_in_a_layer(model: TeacherForced) -> Change:
    mixers = [mixer for mixer in _mixers(model) if isinstance(mixer, DeltaWeights)]
    return [mixers[len(mixers) // 2].decay_rate], [np.zeros(1, np.float32)]


MISTAKES = (
    no_rope,
    unit_head_norms,
    no_attention_in_a_layer,
    no_delta_rule_in_a_layer,
    no_decay_in_a_layer,
)


def _stepper(model: TeacherForced) -> Stepper:
    assert isinstance(model.stepper, Stepper)
    return model.stepper


def _mixers(model: TeacherForced) -> list[AttentionWeights | DeltaWeights]:
    return [layer.mixer for layer in _stepper(model).weights.layers]
