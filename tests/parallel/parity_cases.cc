// SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/parity_cases.h"

#include "tests/parallel/case_list.h"
#include "tests/parallel/sweep_layouts.h"

namespace pentatron::parity {
namespace {

std::vector<Layout> proof_layouts() {
  return {{.tp = 2},
          {.tp = 2, .sequence_parallel = true},
          {.pp = 2},
          {.dp = 2},
          {.dp = 2, .sharded_optimizer = true},
          {.tp = 2, .pp = 2},
          {.tp = 2, .dp = 2},
          {.tp = 2, .sequence_parallel = true, .pp = 2, .dp = 2, .sharded_optimizer = true}};
}
void gpt2_with_adam(CaseList& add) {
  for (const Layout& layout : proof_layouts()) add.equal({.model = ModelKind::kGpt2}, layout);
}

void llama_with_adam(CaseList& add) {
  for (const Layout& layout : proof_layouts()) add.equal({.model = ModelKind::kLlama}, layout);
}

void both_with_sgd(CaseList& add) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    add.equal({.model = model, .optimizer = "sgd"}, {.tp = 2, .pp = 2});
    add.equal({.model = model, .optimizer = "sgd"}, {.dp = 2, .sharded_optimizer = true});
  }
}

void fewer_kv_heads_than_tensor_ranks(CaseList& add) {
  add.equal({.model = ModelKind::kLlama, .num_query_groups = 2}, {.tp = 4});
  add.equal({.model = ModelKind::kLlama, .num_query_groups = 1}, {.tp = 2});
  add.equal({.model = ModelKind::kLlama, .num_query_groups = 1},
            {.tp = 4, .sequence_parallel = true});
}

void micro_batch_size_does_not_change_the_loss(CaseList& add) {
  for (const std::int64_t size : {1, 2, 4}) {
    add.equal({.model = ModelKind::kGpt2}, {.micro_batch_size = size});
    add.equal({.model = ModelKind::kLlama}, {.pp = 2, .micro_batch_size = size});
  }
}

// Tied (GPT-2) and untied embeddings; two micro-batches on four ranks; uneven stages; little
// memory.
void every_schedule(CaseList& add) {
  for (const char* schedule : {"gpipe", "zb-h1", "zb-auto"}) {
    const CaseOptions gpt2{.model = ModelKind::kGpt2};
    add.equal(gpt2, {.pp = 2, .schedule = schedule});
    add.equal(gpt2, {.pp = 4, .micro_batch_size = 4, .schedule = schedule});
    add.equal(gpt2, {.pp = 2, .schedule = schedule, .pipeline = "Ettt|tL"});
    add.equal(gpt2, {.pp = 2, .dp = 2, .sharded_optimizer = true, .schedule = schedule});
    const CaseOptions llama{.model = ModelKind::kLlama};
    add.equal(llama, {.tp = 2, .pp = 2, .schedule = schedule});
    add.equal(llama, {.tp = 2, .sequence_parallel = true, .pp = 4, .schedule = schedule});
    add.equal(llama, {.pp = 4, .schedule = schedule, .pipeline = "E|ttt|t|L"});
  }
  for (const std::int64_t limit : {1, 2, 7}) {
    add.equal({.model = ModelKind::kGpt2},
              {.pp = 4, .schedule = "zb-auto", .max_in_flight = limit});
  }
  add.equal({.model = ModelKind::kGpt2}, {.pp = 2, .schedule = "gpipe", .chunks = 2});
  add.equal({.model = ModelKind::kLlama},
            {.pp = 2, .micro_batch_size = 8, .schedule = "gpipe", .chunks = 2});
}

void several_stages_a_rank(CaseList& add) {
  add.equal({.model = ModelKind::kGpt2}, {.pp = 2, .chunks = 2});
  add.equal({.model = ModelKind::kLlama}, {.tp = 2, .pp = 2, .chunks = 2});
  add.equal({.model = ModelKind::kGpt2},
            {.pp = 2, .dp = 2, .sharded_optimizer = true, .chunks = 2});
  add.equal({.model = ModelKind::kGpt2}, {.tp = 2,
                                          .sequence_parallel = true,
                                          .pp = 2,
                                          .dp = 2,
                                          .sharded_optimizer = true,
                                          .micro_batch_size = 2,
                                          .chunks = 2});
}

void uneven_stages(CaseList& add) {
  add.equal({.model = ModelKind::kGpt2}, {.pp = 2, .pipeline = "Ettt|tL"});
  add.equal({.model = ModelKind::kLlama}, {.pp = 2, .pipeline = "E|ttttL"});
  // Stages without layers, the loss by itself, two stages a rank.
  add.equal({.model = ModelKind::kGpt2}, {.tp = 2, .pp = 2, .pipeline = "E|tt|tt|L"});
  add.equal({.model = ModelKind::kLlama}, {.pp = 2, .dp = 2, .pipeline = "Ett||tt|L"});
}

// One model, two kinds of mlp of two widths, in every layout.
void layers_of_two_kinds(CaseList& add) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions mixed{.model = model, .mixed_layers = true};
    for (const Layout& layout : proof_layouts()) add.equal(mixed, layout);
    add.equal(mixed, {.pp = 2, .chunks = 2});
    add.equal(mixed, {.tp = 2, .pp = 2, .pipeline = "Ettt|tL"});
    add.differs({.model = model}, mixed);
  }
}

// Weights that all heads of all ranks share, slopes and sinks that differ from head to head,
// windows of some layers.
void further_forms_of_attention(CaseList& add) {
  for (const char* attention : {"qk-layernorm", "qk-l2-norm", "alibi", "alibi-in-bf16", "relative",
                                "windows", "sinks", "gate", "longrope"}) {
    for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
      const CaseOptions options{.model = model, .attention = attention};
      for (const Layout& layout : proof_layouts()) add.equal(options, layout);
      add.differs({.model = model}, options);
    }
    // Copies of key heads see only their ranks' share of the gradient.
    add.equal({.model = ModelKind::kLlama, .num_query_groups = 1, .attention = attention},
              {.tp = 4, .sequence_parallel = true});
  }
}

// Latents and the keys' rotated channels, made by weights that are whole on every rank, and heads,
// by weights that are cut; values narrower and wider than keys.
void latent_attention(CaseList& add) {
  for (const char* attention : {"latent", "latent-norms"}) {
    for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
      const CaseOptions options{.model = model, .attention = attention};
      add.differs({.model = model}, options);
      for (const Layout& layout : proof_layouts()) add.equal(options, layout);
      add.equal(options, {.tp = 4});
      add.equal(options, {.tp = 4, .sequence_parallel = true});
      add.equal(options, {.tp = 2, .sequence_parallel = true, .pp = 2, .chunks = 2});
      add.equal(options, {.tp = 2, .sequence_parallel = true, .pp = 2, .schedule = "zb-h1"});
      add.equal(options, {.tp = 2, .dp = 2, .strategy = "optim_grads_params"});
      for (const char* comm : {"p2p", "all_gather", "a2a"}) {
        add.equal(options, {.cp = 2, .cp_comm = comm});
      }
      add.equal(options, {.cp = 4, .cp_comm = "a2a+p2p", .cp_inner = 2});
      add.equal(options, {.tp = 2, .sequence_parallel = true, .cp = 2});
    }
    const CaseOptions muon{.model = ModelKind::kLlama, .optimizer = "muon", .attention = attention};
    add.equal(muon, {.tp = 2, .sequence_parallel = true, .dp = 2, .sharded_optimizer = true});
    const CaseOptions in_fp32{
        .model = ModelKind::kGpt2, .precision = "fp32", .attention = attention, .steps = 2};
    Layout layout{.tp = 2, .sequence_parallel = true};
    const Layout kept = layout;
    for (const char* recompute : {"uniform 1", "core_attn", "core_attn mlp layernorm"}) {
      layout.recompute = recompute;
      add.same_bits(in_fp32, kept, layout);
    }
    add.same_bits(in_fp32, {}, {.offload = "attn_norm qkv_linear core_attn attn_proj mlp_norm"});
  }
}

// One table of biases on every stage, used by layers outside the unit that owns it.
void relative_positions_on_many_stages(CaseList& add) {
  const CaseOptions options{.model = ModelKind::kGpt2, .attention = "relative"};
  add.equal(options, {.pp = 4});
  add.equal(options, {.tp = 2, .pp = 2, .pipeline = "Etttt|L"});
  add.equal(options, {.pp = 4, .schedule = "zb-h1"});
  for (const char* strategy : {"optim", "optim_grads", "optim_grads_params"}) {
    add.equal(options, {.dp = 2, .strategy = strategy});
    add.equal(options, {.tp = 2, .pp = 2, .dp = 2, .strategy = strategy});
  }
  add.equal(options, {.dp = 2, .recompute = "uniform 2", .strategy = "optim_grads_params"});
  CaseOptions muon = options;
  muon.optimizer = "muon";
  add.equal(muon, {.tp = 2, .pp = 2});
}

// Sinks have a weight inside what is recomputed.
void recompute_with_further_forms_of_attention(CaseList& add) {
  for (const char* attention : {"windows", "sinks", "gate", "relative"}) {
    const CaseOptions options{.model = ModelKind::kGpt2, .attention = attention};
    for (const char* recompute : {"uniform 1", "core_attn"}) {
      add.equal(options, {.recompute = recompute});
      add.equal(options, {.tp = 2, .pp = 2, .schedule = "zb-h1", .recompute = recompute});
    }
  }
}

// Norms elsewhere, layers whose halves stand side by side.
void forms_of_the_layer(CaseList& add) {
  for (const auto& [form, model] : {std::pair{"post", ModelKind::kLlama},
                                    {"both", ModelKind::kGpt2},
                                    {"gemma", ModelKind::kLlama},
                                    {"shared-norm", ModelKind::kGpt2},
                                    {"own-norms", ModelKind::kLlama},
                                    {"heterogeneous", ModelKind::kLlama},
                                    {"heterogeneous", ModelKind::kGpt2},
                                    {"residual-after-norm", ModelKind::kGpt2}}) {
    const CaseOptions options{.model = model, .form = form};
    for (const Layout& layout : proof_layouts()) add.equal(options, layout);
    add.differs({.model = model}, options);
    Layout layout{.tp = 2, .sequence_parallel = true};
    const Layout kept = layout;
    for (const char* recompute : {"uniform 1", "core_attn mlp"}) {
      layout.recompute = recompute;
      add.same_bits(options, kept, layout);
    }
  }
}

// Heads' largest logits are of all ranks and micro-batches; shards begin and end inside rows; key
// heads that several ranks hold are scaled alike.
void qk_clip(CaseList& add) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions options{.model = model, .attention = "qk-clip"};
    add.differs({.model = model}, options);
    for (const Layout& layout : proof_layouts()) add.equal(options, layout);
    add.equal(options, {.dp = 4, .sharded_optimizer = true});
    add.equal(options, {.dp = 2, .strategy = "optim_grads_params"});
    add.equal(options, {.pp = 2, .chunks = 2});
    add.equal(options, {.pp = 2, .schedule = "zb-h1"});
    add.equal(options, {.dp = 2, .sharded_optimizer = true, .state_on_host = true});
    for (const char* comm : {"p2p", "all_gather", "a2a"}) {
      add.equal(options, {.cp = 2, .cp_comm = comm});
    }
    add.equal(options, {.cp = 4, .cp_comm = "a2a+p2p", .cp_inner = 2});
    for (const char* recompute : {"uniform 2", "core_attn"}) {
      add.equal(options, {.tp = 2, .recompute = recompute});
    }
  }
  for (const std::int64_t groups : {1, 2, 4}) {
    const CaseOptions options{
        .model = ModelKind::kLlama, .num_query_groups = groups, .attention = "qk-clip"};
    add.equal(options, {.tp = 4, .sequence_parallel = true});
  }
  // Layers of other numbers of groups, and some without attention.
  const CaseOptions unlike{
      .model = ModelKind::kLlama, .form = "heterogeneous", .attention = "qk-clip"};
  add.equal(unlike, {.tp = 2, .pp = 2});
}

// 61 tokens in 64 rows, all of which are weights.
void padding_inside_the_softmax(CaseList& add) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions options{.model = model, .form = "padded-vocab"};
    for (const Layout& layout : proof_layouts()) add.equal(options, layout);
    add.equal(options, {.tp = 4, .pp = 2});
    add.equal(options, {.dp = 2, .strategy = "optim_grads_params"});
    add.equal(options, {.tp = 2, .cp = 2});
    add.differs({.model = model}, options);
  }
}

// The mean of all logits goes over the slices of the vocabulary, padding left out.
void smoothed_labels(CaseList& add) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions options{.model = model, .form = "smoothed-labels"};
    for (const Layout& layout : proof_layouts()) add.equal(options, layout);
    add.equal(options, {.tp = 4});
    add.equal(options, {.tp = 4, .sequence_parallel = true, .pp = 2});
    add.equal(options, {.cp = 2});
    add.equal(options, {.tp = 2, .sequence_parallel = true, .cp = 2});
    add.equal(options, {.micro_batch_size = 4});
    add.equal(options, {.pp = 2, .schedule = "zb-h1", .recompute = "core_attn"});
    add.differs({.model = model}, options);
  }
}

// One norm over heads that stand on several ranks; copies of key heads count once.
void norm_over_all_heads(CaseList& add) {
  for (const std::int64_t groups : {1, 2, 4}) {
    const CaseOptions options{
        .model = ModelKind::kLlama, .num_query_groups = groups, .attention = "qk-all-heads"};
    for (const Layout& layout : proof_layouts()) add.equal(options, layout);
    add.equal(options, {.tp = 4});
    add.equal(options, {.tp = 4, .sequence_parallel = true});
    add.equal(options, {.tp = 2, .cp = 2});
  }
  const CaseOptions all{.model = ModelKind::kLlama, .attention = "qk-all-heads"};
  const CaseOptions each{.model = ModelKind::kLlama, .attention = "qk-layernorm"};
  add.differs(each, all);
  Layout layout{.tp = 2, .sequence_parallel = true};
  const Layout kept = layout;
  layout.recompute = "uniform 1";
  add.same_bits(all, kept, layout);
}

// Recomputing changes no bit of a layout's own outcome.
void recompute_is_equal_to_the_bit(CaseList& add) {
  const std::vector<Layout> layouts = {
      {},
      {.tp = 2},
      {.tp = 2, .sequence_parallel = true},
      {.pp = 2},
      {.pp = 2, .schedule = "zb-h1"},
      {.dp = 2, .sharded_optimizer = true},
      {.pp = 2, .chunks = 2},
      {.cp = 2},
      {.tp = 4},
      {.tp = 2, .pp = 2, .schedule = "zb-h1"},
      {.tp = 2, .pp = 2, .chunks = 2},
      {.tp = 2, .dp = 2, .strategy = "optim_grads_params"},
      {.tp = 2, .cp = 2},
      {.pp = 2, .dp = 2, .schedule = "zb-h1", .strategy = "optim_grads_params"},
      {.tp = 2, .sequence_parallel = true, .pp = 2, .dp = 2, .sharded_optimizer = true}};
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions options{.model = model, .precision = "fp32", .steps = 2};
    for (Layout layout : layouts) {
      const Layout kept = layout;
      for (const char* recompute :
           {"uniform 1", "uniform 3", "block 1", "core_attn", "core_attn mlp", "layernorm",
            "core_attn mlp layernorm", "uniform 2 slices", "block 3 slices"}) {
        layout.recompute = recompute;
        if (!refusal_of(options, layout).empty()) continue;  // slices without ranks to hold them
        add.same_bits(options, kept, layout);
      }
    }
  }
}

// Nor does keeping activations in host memory, in any family of layouts and beside any recompute.
void offload_is_equal_to_the_bit(CaseList& add) {
  const std::vector<Layout> layouts = {
      {},
      {.tp = 2},
      {.tp = 2, .sequence_parallel = true},
      {.pp = 2},
      {.pp = 2, .schedule = "gpipe"},
      {.pp = 2, .schedule = "zb-h1"},
      {.pp = 2, .chunks = 2},
      {.dp = 2, .sharded_optimizer = true},
      {.dp = 2, .strategy = "optim_grads"},
      {.dp = 2, .strategy = "optim_grads_params", .overlap_gather = true},
      {.cp = 2},
      {.cp = 2, .cp_comm = "all_gather"},
      {.cp = 2, .cp_comm = "a2a"},
      {.cp = 4, .cp_comm = "a2a+p2p", .cp_inner = 2},
      {.tp = 2, .sequence_parallel = true, .pp = 2, .chunks = 2},
      {.tp = 2, .sequence_parallel = true, .pp = 2, .dp = 2, .sharded_optimizer = true}};
  constexpr const char* kAll = "attn_norm qkv_linear core_attn attn_proj mlp_norm";
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions options{.model = model, .precision = "fp32", .steps = 2};
    for (Layout layout : layouts) {
      const Layout kept = layout;
      layout.offload = kAll;
      add.same_bits(options, kept, layout);
    }
    for (const Layout& kept : {layouts[0], layouts[2], layouts[5], layouts[6], layouts[9]}) {
      for (const auto& [recompute, offload] :
           {std::pair{"", "attn_proj mlp_norm"},
            {"core_attn mlp", kAll},
            {"core_attn mlp layernorm", "attn_norm core_attn mlp_norm"},
            {"block 1", kAll}}) {
        Layout layout = kept;
        layout.recompute = recompute;
        layout.offload = offload;
        add.same_bits(options, kept, layout);
      }
    }
  }
  // Norms of heads hold the packed product; a gate and one norm for both halves share tensors.
  for (const char* attention : {"qk-layernorm", "gate", "sinks"}) {
    add.same_bits({.model = ModelKind::kLlama, .precision = "fp32", .attention = attention}, {},
                  {.offload = kAll});
  }
  for (const char* form : {"shared-norm", "own-norms", "both", "heterogeneous"}) {
    add.same_bits({.model = ModelKind::kLlama, .precision = "fp32", .form = form}, {.tp = 2},
                  {.tp = 2, .offload = kAll});
  }
  add.same_bits({.precision = "fp32", .lora_rank = 2, .lora_dropout = 0.1}, {}, {.offload = kAll});
}

// A sample's tokens are shared by ranks; documents go over the borders of their chunks.
void context_parallel(CaseList& add) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions options{.model = model};
    for (const char* comm : {"p2p", "all_gather", "a2a"}) {
      add.equal(options, {.cp = 2, .cp_comm = comm});
      add.equal(options, {.micro_batch_size = 4, .cp = 2, .cp_comm = comm});
      add.equal(options, {.tp = 2,
                          .sequence_parallel = true,
                          .cp = 2,
                          .cp_comm = model == ModelKind::kGpt2 ? comm : "p2p"});
      add.equal(options, {.dp = 2, .sharded_optimizer = true, .cp = 2, .cp_comm = comm});
      for (const char* recompute : {"uniform 1", "core_attn", "core_attn mlp"}) {
        add.equal(options, {.recompute = recompute, .cp = 2, .cp_comm = comm});
      }
    }
    add.equal(options, {.cp = 4});
    add.equal(options, {.cp = 4, .cp_comm = "all_gather"});
    add.equal(options, {.cp = 4, .cp_comm = "a2a+p2p", .cp_inner = 2});
    add.equal(options, {.cp = 2, .cp_comm = "p2p all_gather a2a p2p"});
    add.equal(options, {.tp = 2, .cp = 2});
    add.equal(options, {.pp = 2, .cp = 2});
    add.equal(options, {.pp = 2, .schedule = "zb-h1", .cp = 2});
    add.equal(options, {.pp = 2, .chunks = 2, .cp = 2});
    add.equal(options, {.dp = 2, .cp = 2});
    add.equal(options, {.dp = 2, .strategy = "optim_grads_params", .cp = 2});
    add.equal(options, {.strategy = "optim_grads_params", .cp = 2});
    add.equal(options, {.dp = 2, .sharded_optimizer = true, .instances = 2, .cp = 2});
  }
  // Distances, windows and norms of heads are those of whole samples; a sink's gradient is summed
  // over all shares.
  for (const char* attention : {"qk-layernorm", "alibi", "alibi-in-bf16", "relative", "windows",
                                "sinks", "gate", "longrope"}) {
    CaseOptions options{.model = ModelKind::kLlama};
    options.attention = attention;
    for (const char* comm : {"p2p", "all_gather", "a2a"}) {
      add.equal(options, {.cp = 2, .cp_comm = comm});
    }
    add.equal(options, {.cp = 4});
    add.equal(options, {.tp = 2, .sequence_parallel = true, .cp = 2});
  }
  for (const char* attention : {"windows", "sinks"}) {
    const CaseOptions options{.model = ModelKind::kGpt2, .attention = attention};  // dropout
    add.equal(options, {.cp = 4});
    add.equal(options, {.cp = 4, .cp_comm = "all_gather"});
    add.equal(options, {.cp = 4, .cp_comm = "a2a"});
    add.equal(options, {.cp = 4, .cp_comm = "a2a+p2p", .cp_inner = 2});
    add.equal(options, {.pp = 2, .schedule = "zb-h1", .recompute = "core_attn", .cp = 2});
  }
  add.equal({.model = ModelKind::kLlama, .num_query_groups = 1}, {.cp = 4});
  add.equal({.model = ModelKind::kGpt2},
            {.tp = 2, .sequence_parallel = true, .pp = 2, .sharded_optimizer = true, .cp = 2});
}

// What is sharded beside the optimizer's state: gradients, reduced in every micro-batch, and
// parameters, gathered unit by unit.
void sharded_gradients_and_parameters(CaseList& add) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    for (const char* strategy : {"optim", "optim_grads", "optim_grads_params"}) {
      add.equal({.model = model}, {.dp = 2, .strategy = strategy});
      add.equal({.model = model},
                {.tp = 2, .sequence_parallel = true, .pp = 2, .dp = 2, .strategy = strategy});
    }
    add.equal({.model = model},
              {.pp = 2, .dp = 2, .schedule = "zb-h1", .strategy = "optim_grads_params"});
    add.equal({.model = model, .optimizer = "sgd"}, {.dp = 4, .strategy = "optim_grads_params"});
  }
}

// Shards over neighbours, equal copies over the rest.
void two_level_sharding(CaseList& add) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    for (const char* strategy : {"optim", "optim_grads", "optim_grads_params"}) {
      add.equal({.model = model}, {.dp = 4, .strategy = strategy, .instances = 2});
    }
    add.equal({.model = model},
              {.tp = 2, .dp = 4, .strategy = "optim_grads_params", .instances = 2});
  }
}

void overlapped_gather_and_state_on_the_host(CaseList& add) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    add.equal({.model = model},
              {.pp = 2, .dp = 2, .sharded_optimizer = true, .overlap_gather = true});
    add.equal({.model = model}, {.dp = 2, .strategy = "optim_grads", .overlap_gather = true});
    add.equal({.model = model}, {.state_on_host = true});
    add.equal({.model = model},
              {.tp = 2, .dp = 2, .sharded_optimizer = true, .state_on_host = true});
  }
}

// Whole matrices are dealt to the ranks, and cut ones gathered before they are orthogonalised.
void muon(CaseList& add) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions muon{.model = model, .optimizer = "muon"};
    for (const Layout& layout : proof_layouts()) add.equal(muon, layout);
    add.equal(muon, {.dp = 2, .strategy = "optim_grads_params"});
    add.equal(muon, {.tp = 2, .dp = 2, .state_on_host = true});
  }
}

// Feed-forward matrices have more rows than a first gradient has columns: a null space. With the
// usual eps what rounding leaves there counts.
void soap(CaseList& add) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const CaseOptions options{.model = model, .optimizer = "soap", .adam_eps = 1e-8};
    for (const Layout& layout : proof_layouts()) add.equal(options, layout);
    for (const char* strategy : {"optim_grads", "optim_grads_params"}) {
      add.equal(options, {.dp = 2, .strategy = strategy});
    }
    add.equal(options, {.pp = 2, .schedule = "zb-h1"});
    add.equal(options, {.tp = 2, .cp = 2});
  }
}

// Four times as wide as the base: rates and eps by class, scales, multipliers.
void mup(CaseList& add) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    for (const char* optimizer : {"adam", "sgd", "muon"}) {
      const CaseOptions options{.model = model, .optimizer = optimizer, .form = "mup"};
      for (const Layout& layout : proof_layouts()) add.equal(options, layout);
      add.equal(options, {.dp = 2, .strategy = "optim_grads_params"});
      add.equal(options, {.tp = 2, .dp = 2, .sharded_optimizer = true, .state_on_host = true});
      add.differs({.model = model, .optimizer = optimizer}, options);
    }
    const CaseOptions adam{.model = model, .form = "mup"};
    add.equal(adam, {.pp = 2, .schedule = "zb-h1", .recompute = "core_attn"});
    add.equal(adam, {.tp = 2, .cp = 2});
  }
}

// Whole units, and a whole stage of two, without a trained weight; some weights of each layer; the
// tied embedding. Frozen weights keep every bit; the others' gradients are those of a model that
// trains everything, so the norm is theirs alone.
void frozen_weights(CaseList& add) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    for (const std::vector<std::string>& freeze :
         {std::vector<std::string>{"embedding.*", "decoder.layers.0.*", "decoder.layers.1.*"},
          {"*.linear_fc1.*", "*.linear_qkv.*", "*.layers.3.*norm*"}}) {
      CaseOptions options{.model = model, .freeze = freeze};
      for (const Layout& layout : proof_layouts()) add.equal(options, layout);
      for (const char* strategy : {"optim_grads", "optim_grads_params"}) {
        add.equal(options, {.dp = 2, .strategy = strategy});
        add.equal(options, {.tp = 2, .pp = 2, .dp = 2, .strategy = strategy});
      }
      add.equal(options, {.pp = 2, .schedule = "zb-h1", .recompute = "core_attn"});
      add.equal(options, {.pp = 2, .chunks = 2, .recompute = "uniform 1"});
      add.equal(options, {.tp = 2, .cp = 2});
      add.equal(options, {.dp = 2, .sharded_optimizer = true, .state_on_host = true});
      options.optimizer = "muon";
      add.equal(options, {.tp = 2, .pp = 2, .dp = 2, .sharded_optimizer = true});
    }
  }
}

// Frozen weights with adapters on the parts of every linear layer, or of some; whole stages of
// which only those are trained.
void low_rank_adapters(CaseList& add) {
  for (const bool dora : {false, true}) {
    for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
      CaseOptions options{.model = model, .lora_rank = 3, .lora_dropout = 0.2, .lora_dora = dora};
      for (const Layout& layout : proof_layouts()) add.equal(options, layout);
      for (const char* strategy : {"optim_grads", "optim_grads_params"}) {
        add.equal(options, {.tp = 2, .dp = 2, .strategy = strategy});
      }
      add.equal(options, {.pp = 2, .schedule = "zb-h1", .recompute = "core_attn mlp"});
      add.equal(options, {.tp = 2, .sequence_parallel = true, .pp = 2, .schedule = "zb-h1"});
      add.equal(options, {.tp = 2, .pp = 2, .chunks = 2, .recompute = "uniform 1"});
      add.equal(options, {.tp = 2, .cp = 2});
      add.equal(options, {.dp = 2, .sharded_optimizer = true, .state_on_host = true});
      options.optimizer = "muon";
      add.equal(options, {.tp = 2, .pp = 2, .dp = 2, .sharded_optimizer = true});
    }
    // Of maximal update parametrisation: A and B have rates of their own.
    for (const char* optimizer : {"adam", "muon"}) {
      const CaseOptions wide{
          .optimizer = optimizer, .form = "mup", .lora_rank = 2, .lora_dora = dora};
      for (const Layout& layout : proof_layouts()) add.equal(wide, layout);
      add.equal(wide, {.dp = 2, .strategy = "optim_grads_params"});
    }
    // Copies of key heads; parts of a weight without adapters beside others.
    const CaseOptions some{.model = ModelKind::kLlama,
                           .num_query_groups = 1,
                           .lora_rank = 2,
                           .lora_dora = dora,
                           .lora_modules = {"k", "v", "up", "down"}};
    add.equal(some, {.tp = 4});
    add.equal(some, {.tp = 4, .sequence_parallel = true});
  }
}

}  // namespace

std::vector<ParityCase> parity_cases() {
  CaseList cases;
  const auto begin = [&](const char* group, void (*collect)(CaseList&)) {
    cases.begin_group(group);
    collect(cases);
  };
  begin("Gpt2WithAdam", gpt2_with_adam);
  begin("LlamaWithAdam", llama_with_adam);
  begin("BothWithSgd", both_with_sgd);
  begin("FewerKvHeadsThanTensorRanks", fewer_kv_heads_than_tensor_ranks);
  begin("MicroBatchSizeDoesNotChangeTheLoss", micro_batch_size_does_not_change_the_loss);
  begin("EverySchedule", every_schedule);
  begin("SeveralStagesARank", several_stages_a_rank);
  begin("UnevenStages", uneven_stages);
  begin("LayersOfTwoKinds", layers_of_two_kinds);
  begin("FurtherFormsOfAttention", further_forms_of_attention);
  begin("LatentAttention", latent_attention);
  begin("RelativePositionsOnManyStages", relative_positions_on_many_stages);
  begin("RecomputeWithFurtherFormsOfAttention", recompute_with_further_forms_of_attention);
  begin("FormsOfTheLayer", forms_of_the_layer);
  begin("QkClip", qk_clip);
  begin("PaddingInsideTheSoftmax", padding_inside_the_softmax);
  begin("SmoothedLabels", smoothed_labels);
  begin("NormOverAllHeads", norm_over_all_heads);
  begin("RecomputeIsEqualToTheBit", recompute_is_equal_to_the_bit);
  begin("OffloadIsEqualToTheBit", offload_is_equal_to_the_bit);
  begin("ContextParallel", context_parallel);
  begin("ShardedGradientsAndParameters", sharded_gradients_and_parameters);
  begin("TwoLevelSharding", two_level_sharding);
  begin("OverlappedGatherAndStateOnTheHost", overlapped_gather_and_state_on_the_host);
  begin("Muon", muon);
  begin("Soap", soap);
  begin("Mup", mup);
  begin("FrozenWeights", frozen_weights);
  begin("LowRankAdapters", low_rank_adapters);
  return cases.take();
}

}  // namespace pentatron::parity
