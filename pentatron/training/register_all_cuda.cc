// SPDX-License-Identifier: Apache-2.0
// What the program calls in the CUDA library after opening it (tensor/device.cc): each module
// registers what it has.
#include "pentatron/comm/register_cuda.h"
#include "pentatron/ops/register_cuda.h"
#include "pentatron/tensor/device_table.h"
#include "pentatron/tensor/register_cuda.h"

extern "C" void pentatron_cuda_register() {
  pentatron::tensor::register_cuda_device();
  pentatron::comm::register_cuda_comm();
  pentatron::tensor::register_cuda_tensor();
  pentatron::ops::register_cuda_ops();
}
