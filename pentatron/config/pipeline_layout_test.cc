// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/pipeline_layout.h"

#include <gtest/gtest.h>

#include <functional>

#include "pentatron/base/error.h"

namespace pentatron::config {
namespace {

std::vector<int> layers_of(const std::vector<StagePlan>& plans) {
  std::vector<int> layers;
  int next = 0;
  for (const StagePlan& plan : plans) {
    EXPECT_EQ(plan.first_layer, next) << "layers are numbered through";
    next = plan.end_layer;
    layers.push_back(plan.num_layers());
  }
  for (std::size_t s = 0; s < plans.size(); ++s) {
    EXPECT_EQ(plans[s].embedding, s == 0);
    EXPECT_EQ(plans[s].loss, s + 1 == plans.size());
  }
  return layers;
}

std::vector<int> split(
    std::int64_t num_layers, std::int64_t pp,
    const std::function<void(ParallelConfig&)>& change = [](ParallelConfig&) {}) {
  ModelConfig model;
  model.num_layers = num_layers;
  ParallelConfig parallel;
  parallel.pipeline_model_parallel_size = pp;
  change(parallel);
  EXPECT_EQ(static_cast<std::int64_t>(plan_pipeline(model, parallel).size()),
            pp * num_pipeline_chunks(model, parallel));
  return layers_of(plan_pipeline(model, parallel));
}

std::string problem(std::int64_t num_layers, std::int64_t pp,
                    const std::function<void(ParallelConfig&)>& change) {
  try {
    (void)split(num_layers, pp, change);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

using Layers = std::vector<int>;

TEST(PipelineLayout, EqualStages) {
  EXPECT_EQ(split(6, 1), (Layers{6}));
  EXPECT_EQ(split(6, 3), (Layers{2, 2, 2}));
  EXPECT_EQ(problem(7, 2, [](auto&) {}),
            "--num-layers 7 does not divide by --pipeline-model-parallel-size 2");
  EXPECT_EQ(whole_model({.num_layers = 4}),
            (StagePlan{.embedding = true, .first_layer = 0, .end_layer = 4, .loss = true}));
}

TEST(PipelineLayout, EndsWithOtherNumbersOfLayers) {
  const auto ends = [](std::int64_t first, std::int64_t last) {
    return [=](ParallelConfig& p) {
      p.decoder_first_pipeline_num_layers = first;
      p.decoder_last_pipeline_num_layers = last;
    };
  };
  EXPECT_EQ(split(11, 4, ends(2, 1)), (Layers{2, 4, 4, 1}));
  EXPECT_EQ(split(10, 4, ends(1, 0)), (Layers{1, 3, 3, 3}));
  EXPECT_EQ(split(7, 2, ends(0, 2)), (Layers{5, 2}));
  EXPECT_EQ(split(5, 2, ends(3, 2)), (Layers{3, 2}));
  EXPECT_NE(problem(10, 4, ends(2, 1)).find("leaves 7 for the other 2"), std::string::npos);
  EXPECT_NE(problem(4, 2, ends(3, 2)), "");
  EXPECT_NE(problem(4, 1, ends(4, 0)).find("above 1"), std::string::npos);
}

TEST(PipelineLayout, EmbeddingAndLossCountAsLayers) {
  const auto account = [](bool embedding, bool loss) {
    return [=](ParallelConfig& p) {
      p.account_for_embedding_in_pipeline_split = embedding;
      p.account_for_loss_in_pipeline_split = loss;
    };
  };
  EXPECT_EQ(split(6, 4, account(true, true)), (Layers{1, 2, 2, 1}));
  EXPECT_EQ(split(7, 2, account(true, false)), (Layers{3, 4}));
  EXPECT_EQ(split(7, 2, account(false, true)), (Layers{4, 3}));
  EXPECT_NE(problem(6, 2, account(true, false)).find("with 1 for embedding and loss"),
            std::string::npos);
}

TEST(PipelineLayout, VirtualStages) {
  const auto per_stage = [](std::int64_t n) {
    return [=](ParallelConfig& p) { p.num_layers_per_virtual_pipeline_stage = n; };
  };
  const auto per_rank = [](std::int64_t n) {
    return [=](ParallelConfig& p) { p.num_virtual_stages_per_pipeline_rank = n; };
  };
  EXPECT_EQ(split(8, 2, per_stage(2)), (Layers{2, 2, 2, 2}));
  EXPECT_EQ(split(8, 2, per_rank(4)), (Layers(8, 1)));
  EXPECT_EQ(split(10, 2,
                  [](ParallelConfig& p) {
                    p.num_virtual_stages_per_pipeline_rank = 2;
                    p.account_for_embedding_in_pipeline_split = true;
                    p.account_for_loss_in_pipeline_split = true;
                  }),
            (Layers{2, 3, 3, 2}));
  EXPECT_EQ(split(10, 3,
                  [](ParallelConfig& p) {
                    p.num_virtual_stages_per_pipeline_rank = 2;
                    p.decoder_first_pipeline_num_layers = 2;
                    p.decoder_last_pipeline_num_layers = 4;
                  }),
            (Layers{1, 2, 2, 1, 2, 2}));
  EXPECT_EQ(problem(12, 2, per_stage(4)),
            "6 layers a pipeline rank does not divide by --num-layers-per-virtual-pipeline-stage "
            "4");
  EXPECT_NE(problem(6, 2, per_rank(2)).find("3 layers of a pipeline rank"), std::string::npos);
  EXPECT_NE(problem(8, 1, per_rank(2)), "");
}

TEST(PipelineLayout, OneWayOnly) {
  const auto both = [](auto change) {
    return problem(8, 2, [&](ParallelConfig& p) {
      p.pipeline_model_parallel_layout = "Et*4|t*4L";
      change(p);
    });
  };
  EXPECT_EQ(both([](ParallelConfig&) {}), "");
  EXPECT_NE(both([](ParallelConfig& p) { p.decoder_first_pipeline_num_layers = 4; }), "");
  EXPECT_NE(both([](ParallelConfig& p) { p.account_for_loss_in_pipeline_split = true; }), "");
  EXPECT_NE(both([](ParallelConfig& p) { p.num_virtual_stages_per_pipeline_rank = 2; }), "");
  EXPECT_NE(problem(8, 2,
                    [](ParallelConfig& p) {
                      p.num_virtual_stages_per_pipeline_rank = 2;
                      p.num_layers_per_virtual_pipeline_stage = 2;
                    }),
            "");
  EXPECT_NE(problem(8, 2,
                    [](ParallelConfig& p) {
                      p.decoder_first_pipeline_num_layers = 4;
                      p.account_for_loss_in_pipeline_split = true;
                    }),
            "");
}

TEST(PipelineLayout, TheLanguage) {
  EXPECT_EQ(layers_of(parse_pipeline_layout("EttL")), (Layers{2}));
  EXPECT_EQ(layers_of(parse_pipeline_layout("Et*3|(tt|)*29,|L")).size(), 32U);
  EXPECT_EQ(layers_of(parse_pipeline_layout("Et|(tt|)*2,|t*2 t|L")), (Layers{1, 2, 2, 0, 3, 0}));
  EXPECT_EQ(layers_of(parse_pipeline_layout("E|(t|t*2|)*2L")), (Layers{0, 1, 2, 1, 2, 0}));
  EXPECT_EQ(layers_of(parse_pipeline_layout("E((t*2|)*2t|)*2L")), (Layers{2, 2, 1, 2, 2, 1, 0}))
      << "the E opens the first stage";
  EXPECT_EQ(layers_of(parse_pipeline_layout("E|*3L")), (Layers{0, 0, 0, 0})) << "| repeats too";
  EXPECT_EQ(layers_of(parse_pipeline_layout("Et*0|tL")), (Layers{0, 1}));
  EXPECT_EQ(parse_pipeline_layout("Ett|mmL").back().mtp_layers, 2);
}

TEST(PipelineLayout, WrongText) {
  const auto reason = [](std::string_view text) -> std::string {
    try {
      (void)parse_pipeline_layout(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(std::string(error.what()).find("--pipeline-model-parallel-layout"),
                std::string::npos);
      return error.what();
    }
    return "accepted";
  };
  for (const char* text : {"",
                           "ttL",
                           "Ett",
                           "tE|tL",
                           "Et|L|t",
                           "EtEL",
                           "EtLL",
                           "Et|mt|L",
                           "Emt|tL",
                           "Etm|m|L",
                           "Et(|tL",
                           "Et)|tL",
                           "Et*|tL",
                           "Etx|L",
                           "E t*-1 L",
                           "Et*99999999999999999999L",
                           "E(((t*9999)*9999)*9999)L",
                           "E*2tL",
                           "|EtL",
                           "EtL|",
                           "*2EtL"}) {
    EXPECT_NE(reason(text), "accepted") << text;
  }
  EXPECT_NE(reason(std::string(1000, '(')).find("nested too deep"), std::string::npos);
  EXPECT_NE(reason("Etx|L").find("'x' stands for nothing"), std::string::npos);
}

TEST(PipelineLayout, TheLayoutFitsTheModel) {
  const auto layout = [](const char* text) {
    return [text](ParallelConfig& p) { p.pipeline_model_parallel_layout = text; };
  };
  EXPECT_EQ(split(5, 2, layout("E|tt|t|ttL")), (Layers{0, 2, 1, 2}));
  EXPECT_NE(problem(6, 2, layout("E|tt|t|ttL")).find("5 decoder layers (t), --num-layers is 6"),
            std::string::npos);
  EXPECT_NE(problem(5, 2, layout("E|ttt|ttL")).find("number of stages, 3,"), std::string::npos);
  EXPECT_NE(problem(2, 2, layout("Ett|mL")).find("not built yet"), std::string::npos);
  EXPECT_NE(problem(2, 1, layout("EttL")), "") << "needs a pipeline";
}

// Layer counts of the pipeline's ends where there is no pipeline: refused, not passed over.
TEST(Cases, MegatronLM_1778) {
  EXPECT_NE(problem(4, 1, [](ParallelConfig& p) { p.decoder_first_pipeline_num_layers = 1; })
                .find("--pipeline-model-parallel-size above 1"),
            std::string::npos);
  EXPECT_NE(problem(4, 1, [](ParallelConfig& p) { p.decoder_last_pipeline_num_layers = 4; }), "");
}

}  // namespace
}  // namespace pentatron::config
