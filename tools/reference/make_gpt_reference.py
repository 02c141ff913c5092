# SPDX-License-Identifier: Apache-2.0
"""Reference tensors of two tiny models made by Hugging Face transformers, in fp32 on a CPU.

Writes gpt2_tiny.safetensors and llama_tiny.safetensors: every weight under the library's own name ("weight/<name>"), tokens,
labels and loss mask [samples, length], logits, the summed masked loss, and the gradient of every weight ("grad/<name>").
All weights are random, norms and biases too. Queries and keys are scaled up until attention is far from uniform; the
script checks that, so that a swapped head, a shifted position or a missing mask shows in the logits.

    python tools/reference/make_gpt_reference.py --output pentatron/models/testdata
"""

import argparse
import pathlib

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

SAMPLES, LENGTH = 2, 12


def gpt2():
    config = GPT2Config(
        vocab_size=61, n_positions=16, n_embd=24, n_layer=2, n_head=4, n_inner=40,
        activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        layer_norm_epsilon=1e-5, bos_token_id=0, eos_token_id=0, attn_implementation="eager")
    return GPT2LMHeadModel(config), config.vocab_size


def llama():
    config = LlamaConfig(
        vocab_size=61, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=16, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=False, attention_bias=False, mlp_bias=False, attn_implementation="eager")
    return LlamaForCausalLM(config), config.vocab_size


def randomise(model, generator):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1 and name.endswith("weight"):  # norms
                parameter.copy_(1.0 + 0.3 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.3 * noise)
            elif "wte" in name or "wpe" in name or "embed_tokens" in name:
                parameter.copy_(0.8 * noise)
            elif "c_attn" in name:  # [in, 3 hidden]
                parameter.copy_(0.25 * noise)
                parameter[:, : 2 * parameter.shape[0]] *= 2.0
            elif "q_proj" in name or "k_proj" in name:
                parameter.copy_(0.45 * noise)
            else:
                parameter.copy_(0.25 * noise)


def check_attention(attentions):
    """Mean largest probability of the last queries against the uniform 1/length."""
    last = torch.stack([a[:, :, -1, :] for a in attentions])
    sharpness = last.max(-1).values.mean().item()
    assert sharpness > 4.0 / LENGTH, f"attention is too uniform: {sharpness}"
    return sharpness


def write(name, build, seed, folder):
    generator = torch.Generator().manual_seed(seed)
    model, vocab = build()
    model = model.float().eval()
    randomise(model, generator)
    tokens = torch.randint(0, vocab, (SAMPLES, LENGTH), generator=generator)
    labels = torch.randint(0, vocab, (SAMPLES, LENGTH), generator=generator)
    mask = (torch.rand((SAMPLES, LENGTH), generator=generator) > 0.3).float()
    out = model(input_ids=tokens, output_attentions=True, use_cache=False)
    sharpness = check_attention(out.attentions)
    losses = torch.nn.functional.cross_entropy(out.logits.view(-1, vocab), labels.view(-1), reduction="none")
    loss = (losses * mask.view(-1)).sum()
    loss.backward()
    tensors = {"tokens": tokens, "labels": labels, "loss_mask": mask, "logits": out.logits.detach(),
               "loss": loss.detach().reshape(1)}
    for key, parameter in model.named_parameters():
        tensors["weight/" + key] = parameter.detach().clone()
        tensors["grad/" + key] = parameter.grad.detach().clone()
    path = folder / f"{name}.safetensors"
    save_file({k: v.contiguous() for k, v in tensors.items()}, path)
    print(f"{path}: {path.stat().st_size} bytes, loss {loss.item():.6f}, sharpness {sharpness:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, required=True)
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    write("gpt2_tiny", gpt2, 20, folder)
    write("llama_tiny", llama, 21, folder)


if __name__ == "__main__":
    main()
