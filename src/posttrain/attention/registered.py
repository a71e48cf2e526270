"""The one attention function that trainer and engine register with transformers, under the name ``posttrain``.

It dispatches on what the model's forward was given: ``segments=Segments`` (trainer, `packed.py`) or ``slots=Slots``
(engine, `slots.py`). So one module serves both, with no switch between them and no cache object of transformers.

Shapes: T tokens of the packed row, H query heads, G key/value heads, D head width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from posttrain.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from posttrain.attention.slots import Slots
    from posttrain.types import Segments

NAME = "posttrain"


def posttrain_attention(
    module: nn.Module,
    query_1HTD: Tensor,
    key_1GTD: Tensor,
    value_1GTD: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    segments: Segments | None = None,
    slots: Slots | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """``[1, T, H, D]`` and no weights. Raises UsageError when the forward got neither ``segments`` nor ``slots``."""
    if kwargs.get("s_aux") is not None:
        raise UsageError(f"{type(module).__name__} uses attention sinks, which the posttrain attention does not compute")
    if scaling is None:
        scaling = float(query_1HTD.shape[-1]) ** -0.5
    options: dict[str, Any] = {"scaling": scaling, "sliding_window": sliding_window, "softcap": softcap}
    if slots is not None:
        from posttrain.attention import slots as by_slots

        return by_slots.attend(module, query_1HTD, key_1GTD, value_1GTD, slots, **options), None
    if segments is not None:
        from posttrain.attention import packed

        return packed.attend(module, query_1HTD, key_1GTD, value_1GTD, segments, dropout=dropout, **options), None
    raise UsageError(
        "the model's attention is 'posttrain', which needs segments= (training) or slots= (sampling) in the forward; "
        "for a plain forward call model.set_attn_implementation('sdpa') first"
    )


def install(model: Any) -> None:
    """Registers the function and makes ``model`` use it; repeating it costs nothing.

    Raises UsageError for a model whose attention cannot be replaced.
    """
    from transformers import AttentionInterface

    if getattr(model.config, "_attn_implementation", None) == NAME:
        return
    if not getattr(model, "_supports_attention_backend", False):
        raise UsageError(
            f"{type(model).__name__} does not let its attention be replaced (no attention backend in transformers); "
            "use an architecture that does, such as Llama, Qwen or Gemma"
        )
    AttentionInterface.register(NAME, posttrain_attention)
    model.set_attn_implementation(NAME)
