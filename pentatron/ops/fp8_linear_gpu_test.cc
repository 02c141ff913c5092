// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "pentatron/ops/activation.h"
#include "pentatron/ops/test_fp8.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "pentatron/tensor/known_largest.h"

namespace pentatron::ops {
namespace {

TEST(Fp8LinearOnGpu, StaysWithinTheBoundOfItsFormats) {
  PENTATRON_NEEDS_GPUS(1);
  for (const std::int64_t rows : {0, 1, 37, 64}) {
    testing::expect_fp8_linear(Device("cuda:0"), rows);
  }
}

TEST(Fp8LinearOnGpu, MakesWeightGradientsInFp8) {
  PENTATRON_NEEDS_GPUS(1);
  for (const std::int64_t rows : {0, 1, 37, 64, 1000}) {
    testing::expect_fp8_linear(Device("cuda:0"), rows, {}, {}, /*weight_gradient=*/true);
  }
}

// Odd sizes, tiles cut at both edges, every dtype; then what is not a number.
TEST(Fp8LinearOnGpu, CastsBothOrdersToTheCpusBits) {
  PENTATRON_NEEDS_GPUS(1);
  for (const auto format : {tensor::Fp8Format::kE4M3, tensor::Fp8Format::kE5M2}) {
    for (const auto& [rows, columns] :
         {std::pair{1, 16}, {37, 48}, {128, 64}, {129, 80}, {300, 272}, {1024, 1008}}) {
      for (const DType dtype : {DType::BFloat16, DType::Float}) {
        const Tensor x = testing::normal({rows, columns}, 1).mul(1e-3).to(dtype);
        testing::expect_fp8_orders(Device("cuda:0"), x, format);
      }
    }
    testing::expect_fp8_orders(Device("cuda:0"), tensor::zeros({33, 32}, DType::BFloat16), format);
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      const Tensor x = testing::normal({64, 64}, 1).to(DType::BFloat16);
      x[3][5] = bad;
      const auto q = op_table(Device("cuda:0"))
                         .fp8_orders(x.to(Device("cuda:0")), {.format = format, .columns = true});
      EXPECT_TRUE(std::isnan(tensor::dequantize_fp8(q.rows_mk, DType::Float)[3][5].item<float>()))
          << bad;
    }
  }
}

// out += a b^T in fp32, where the library's own function has no accumulation. Tensor cores add fp8
// products with about 13 bits before they go to fp32.
TEST(Fp8LinearOnGpu, WeightGradientsAccumulate) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu("cuda:0");
  const Tensor x = testing::normal({200, 96}, 1).to(DType::BFloat16);
  const Tensor dy = testing::normal({200, 64}, 2).to(DType::BFloat16);
  const auto columns = [&](const Tensor& t, tensor::Fp8Format format, Device device) {
    return op_table(device)
        .fp8_orders(t.to(device), {.format = format, .rows = false, .columns = true})
        .columns_km;
  };
  for (const DType dtype : {DType::Float, DType::BFloat16}) {
    Tensor result[2];
    for (const Device device : {Device("cpu"), gpu}) {
      const Tensor slot = testing::normal({64, 96}, 3).to(dtype).to(device);
      op_table(device).product_weight_gradient(
          {.dy_fp8_ot = columns(dy, tensor::Fp8Format::kE5M2, device),
           .x_fp8_it = columns(x, tensor::Fp8Format::kE4M3, device),
           .slot = {slot, /*accumulate=*/true}});
      result[device == gpu ? 1 : 0] = slot;
    }
    testing::expect_close(result[1], result[0].to(DType::Double),
                          dtype == DType::Float ? 2e-3 : 0.01, "accumulated weight gradient");
  }
}

// --fp8-recipe blockwise. Casts first, then products: if products alone fail, suspect the order of
// scales that cuBLASLt reads (cublas_lt_cuda.cc, scale_mode and has_library_order).
TEST(Fp8LinearOnGpu, CastsBlocksToTheCpusBits) {
  PENTATRON_NEEDS_GPUS(1);
  for (const auto format : {tensor::Fp8Format::kE4M3, tensor::Fp8Format::kE5M2}) {
    for (const auto block : {tensor::kActivationBlock, tensor::kWeightBlock}) {
      for (const auto& [rows, columns] :
           {std::pair{1, 16}, {37, 48}, {128, 128}, {129, 144}, {300, 272}, {1024, 1008}}) {
        for (const DType dtype : {DType::BFloat16, DType::Float}) {
          const Tensor x = testing::normal({rows, columns}, 1).mul(1e-3).to(dtype);
          testing::expect_fp8_block_orders(
              Device("cuda:0"), x, format, block,
              fmt::format("[{}, {}] {} in {}, blocks of {} rows", rows, columns,
                          tensor::dtype_name(dtype),
                          format == tensor::Fp8Format::kE4M3 ? "e4m3" : "e5m2", block.rows));
        }
      }
      testing::expect_fp8_block_orders(Device("cuda:0"), tensor::zeros({33, 32}, DType::BFloat16),
                                       format, block, "zeros");
      testing::expect_fp8_block_orders(Device("cuda:0"),
                                       testing::normal({33, 160}, 1, DType::Float).mul(0x1p-130),
                                       format, block, "values below the smallest normal one");
      for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        const Tensor x = testing::normal({64, 64}, 1).to(DType::BFloat16);
        x[3][5] = bad;
        const auto q =
            op_table(Device("cuda:0"))
                .fp8_orders(x.to(Device("cuda:0")),
                            {.format = format, .block = block, .rows = true, .columns = true});
        EXPECT_TRUE(std::isnan(tensor::dequantize_fp8(q.rows_mk, DType::Float)[3][5].item<float>()))
            << bad << " in rows, blocks of " << block.rows;
        EXPECT_TRUE(
            std::isnan(tensor::dequantize_fp8(q.columns_km, DType::Float)[5][3].item<float>()))
            << bad << " in columns, blocks of " << block.rows;
      }
    }
  }
}

TEST(Fp8LinearOnGpu, BlockProductsAreThoseOfTheHeldValues) {
  PENTATRON_NEEDS_GPUS(1);
  testing::expect_fp8_block_products(Device("cuda:0"));
}

TEST(Fp8LinearOnGpu, BlockwiseStaysWithinTheBoundOfItsFormats) {
  PENTATRON_NEEDS_GPUS(1);
  for (const std::int64_t rows : {0, 1, 37, 64, 1000}) {
    SCOPED_TRACE(fmt::format("{} rows", rows));
    for (const bool weight_gradient : {false, true}) {
      testing::expect_fp8_linear(Device("cuda:0"), rows, tensor::kActivationBlock,
                                 tensor::kWeightBlock, weight_gradient);
    }
  }
}

TEST(Fp8LinearOnGpu, ProductsAreThoseOfTheHeldValues) {
  PENTATRON_NEEDS_GPUS(1);
  testing::expect_fp8_products(Device("cuda:0"));
}

// What a producing kernel says of its output is what a pass over it finds, the output keeps its
// bits, and so does the cast. `plain`: made without being asked.
void expect_noted(const Tensor& made, const Tensor& plain, const std::string& what) {
  EXPECT_FALSE(tensor::noted_largest(plain).defined()) << what;
  EXPECT_TRUE(made.equal(plain)) << what << ": the values changed";
  const Tensor largest = tensor::noted_largest(made);
  ASSERT_TRUE(largest.defined()) << what << ": nothing noted";
  EXPECT_EQ(largest.item<float>(), made.abs().max().to(DType::Float).item<float>()) << what;
  if (made.size(1) % tensor::kFp8Step != 0) return;
  const tensor::Fp8Request request{.rows = true, .columns = true};
  const OpTable& table = op_table(made.device());
  const auto fused = table.fp8_orders(made, request), apart = table.fp8_orders(plain, request);
  const auto bytes = [](const tensor::Fp8Tensor& t) { return t.data.view(DType::Byte); };
  EXPECT_TRUE(fused.rows_mk.scale.equal(apart.rows_mk.scale)) << what << ": scale";
  EXPECT_TRUE(bytes(fused.rows_mk).equal(bytes(apart.rows_mk))) << what << ": rows";
  EXPECT_TRUE(bytes(fused.columns_km).equal(bytes(apart.columns_km))) << what << ": columns";
}

// Rows of a warp, of a block, too long for registers, not in vectors; fp32 has a pass of its own.
TEST(Fp8LinearOnGpu, NormsTellTheirLargestValue) {
  PENTATRON_NEEDS_GPUS(1);
  const OpTable& table = op_table(Device("cuda:0"));
  for (const std::int64_t columns : {16, 100, 768, 1024, 4096, 16384}) {
    for (const std::int64_t rows : {1, 37, 300}) {
      for (const bool shifts : {false, true}) {
        for (const DType dtype : {DType::BFloat16, DType::Float}) {
          const auto made = [&](const Shape& shape, int seed) {
            return testing::normal(shape, seed).to(dtype).to(Device("cuda:0"));
          };
          NormInput in{.x_th = made({rows, columns}, 1),
                       .delta_th = shifts ? made({rows, columns}, 2) : Tensor(),
                       .weight_h = made({columns}, 3),
                       .bias_h = shifts ? made({columns}, 4) : Tensor(),
                       .eps = 1e-5};
          const NormOutput plain = table.norm_forward(in);
          in.largest = true;
          expect_noted(table.norm_forward(in).y_th, plain.y_th,
                       fmt::format("{} [{}, {}] {}", shifts ? "added LayerNorm" : "RMSNorm", rows,
                                   columns, tensor::dtype_name(dtype)));
        }
      }
    }
  }
}

TEST(Fp8LinearOnGpu, GatesTellTheirLargestValue) {
  PENTATRON_NEEDS_GPUS(1);
  const OpTable& table = op_table(Device("cuda:0"));
  for (const std::int64_t columns : {16, 20, 48, 2048, 14336}) {
    for (const std::int64_t rows : {1, 37, 300}) {
      for (const GateKind kind : {GateKind::kSilu, GateKind::kGeluTanh}) {
        for (const DType dtype : {DType::BFloat16, DType::Float}) {
          const std::string what =
              fmt::format("{} [{}, {}] {}", kind == GateKind::kSilu ? "SwiGLU" : "GEGLU", rows,
                          columns, tensor::dtype_name(dtype));
          const Gate gate{.kind = kind};
          const Tensor x = testing::normal({rows, 2 * columns}, 1).to(dtype).to(Device("cuda:0"));
          const Tensor dy = testing::normal({rows, columns}, 2).to(dtype).to(Device("cuda:0"));
          expect_noted(table.gated_forward(gate, x, true), table.gated_forward(gate, x, false),
                       what);
          expect_noted(table.gated_backward(gate, x, dy, true),
                       table.gated_backward(gate, x, dy, false), what + " backward");
        }
      }
    }
  }
}

// The op hands on what its kernel noted, in tensorwise fp8 alone; a NaN stays visible.
TEST(Fp8LinearOnGpu, ProducersLookForTheLargestValueWhereItIsWanted) {
  PENTATRON_NEEDS_GPUS(1);
  const Device gpu("cuda:0");
  const Tensor x = testing::normal({64, 256}, 1).to(DType::BFloat16);
  const Recipe tensorwise{.numbers = Numbers::kFp8};
  const Recipe blockwise{.numbers = Numbers::kFp8,
                         .activations = tensor::kActivationBlock,
                         .weights = tensor::kWeightBlock};
  const Gate gate{.kind = GateKind::kSilu};
  const auto noted = [&](const Recipe& recipe) {
    return tensor::noted_largest(gated(gate, testing::leaf(x.to(gpu)), {.recipe = recipe}));
  };
  EXPECT_TRUE(noted(tensorwise).defined());
  EXPECT_FALSE(noted(blockwise).defined());
  EXPECT_FALSE(noted({}).defined());
  x[3][5] = std::nanf("");
  EXPECT_TRUE(std::isnan(noted(tensorwise).item<float>()));
}

TEST(Fp8LinearOnGpu, QuantisesToTheCpusBits) {
  PENTATRON_NEEDS_GPUS(1);
  const Tensor x = testing::normal({33, 48}, 1).to(DType::BFloat16);
  for (const auto format : {tensor::Fp8Format::kE4M3, tensor::Fp8Format::kE5M2}) {
    const auto host = tensor::quantize_fp8(x, format);
    const auto gpu = tensor::quantize_fp8(x.to(Device("cuda:0")), format);
    EXPECT_EQ(host.scale.item<float>(), gpu.scale.item<float>());
    EXPECT_TRUE(host.data.view(DType::Byte).equal(gpu.data.cpu().view(DType::Byte)));
  }
}

}  // namespace
}  // namespace pentatron::ops
