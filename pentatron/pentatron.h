// SPDX-License-Identifier: Apache-2.0
#pragma once

// The public interface: what a program against an installed Pentatron includes. docs/versioning.md
// says which of it stays as it is.
//
// Start from training::on_ranks() and training::Session (examples/simple_training_loop); a layer of
// one's own from nn::Module and ops::as_graph_tensor() (examples/custom_layer).

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/philox.h"
#include "pentatron/comm/backend.h"
#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/config/validate.h"
#include "pentatron/datasets/gpt_sample.h"
#include "pentatron/datasets/sample_source.h"
#include "pentatron/inference/generator.h"
#include "pentatron/inference/loaded_model.h"
#include "pentatron/models/gpt/gpt_stage.h"
#include "pentatron/nn/module.h"
#include "pentatron/nn/stage.h"
#include "pentatron/ops/backward.h"
#include "pentatron/parallel_layers/make_parameter.h"
#include "pentatron/tensor/tensor.h"
#include "pentatron/training/engine.h"
#include "pentatron/training/run.h"
#include "pentatron/training/session.h"
#include "pentatron/version.h"
