"""A tiny RMSNorm transformer, randomly initialised: its residual stream has its true span, its outputs stay."""

import pytest
import torch
from torch import nn

import radnet
from radnet.compression.replacements import RMSRescaling

transformers = pytest.importorskip("transformers", reason="install radnet[transformers]")


def tiny_llama(layers, *, width=64):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=width, intermediate_size=24, num_hidden_layers=layers, num_attention_heads=1,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=32, tie_word_embeddings=False, use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    for name, p in model.named_parameters():
        if "norm" in name:
            nn.init.uniform_(p, 0.5, 1.5)
    return model


def tokens(rows=8):
    return torch.randint(0, 50, (rows, 7), generator=torch.Generator().manual_seed(1))


def stream(compression):
    return next(space for space in compression.spaces if "embed_tokens" in space.space)


def test_a_full_residual_stream_is_reported_as_full_and_nothing_changes():
    model = tiny_llama(2)
    c = radnet.compress(model, tokens())
    assert c.traced_by == "torch.export"
    assert (stream(c).before, stream(c).after) == (64, 64)
    assert stream(c).why == "every direction of it is used"
    assert isinstance(c.network.model.norm, RMSRescaling)
    assert (c.network.model.norm.n, c.network.model.norm.eps) == (64, 1e-6)
    assert radnet.verify(model, c.network, tokens()).lossless


def test_a_stream_shrinks_to_the_span_of_all_that_writes_it(evidence):
    model = tiny_llama(1)
    with torch.no_grad():
        rows = torch.randn(4, 64)
        model.model.embed_tokens.weight.copy_(rows[torch.arange(50) % 4])  # a vocabulary of four vectors
    c = radnet.compress(model, tokens())
    evidence("transformer", before=stream(c).before, after=stream(c).after)
    assert stream(c).after == 4 + 8 + 24  # the embedding, attention through heads of 8, an MLP of 24
    assert c.network.model.embed_tokens.weight.shape == (50, 36)
    assert c.network.lm_head.weight.shape == (50, 36)
    other = torch.randint(0, 50, (20, 11), generator=torch.Generator().manual_seed(2))
    assert radnet.verify(model, c.network, other).lossless
    with torch.no_grad():
        assert torch.equal(model(other).logits.argmax(dim=-1), c.network(other).logits.argmax(dim=-1))


def test_an_embedding_that_is_also_the_head_pins_the_stream_or_stays_tied():
    model = tiny_llama(1)
    model.lm_head.weight = model.model.embed_tokens.weight
    c = radnet.compress(model, tokens())
    assert c.network.lm_head.weight is c.network.model.embed_tokens.weight
    assert radnet.verify(model, c.network, tokens()).lossless
