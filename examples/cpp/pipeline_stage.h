// One stage of pipeline.cc, y = x * w, on a mesh of two devices: what each does with its two rows of a microbatch, and
// its copy of the stage's weights.
#ifndef EXAMPLES_CPP_PIPELINE_STAGE_H_
#define EXAMPLES_CPP_PIPELINE_STAGE_H_

#include "example.h"

constexpr char kForward[] = R"(module @forward {
  func.func public @main(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>) -> tensor<2x4xf32> {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    return %y : tensor<2x4xf32>
  }
})";

// The gradient of x; and that of w, added to the sum of those of earlier microbatches, whose memory it takes.
constexpr char kBackward[] = R"(module @backward {
  func.func public @main(%x: tensor<2x4xf32>, %w: tensor<4x4xf32>, %dy: tensor<2x4xf32>,
                         %sum: tensor<4x4xf32> {tf.aliasing_output = 1 : i32})
      -> (tensor<2x4xf32>, tensor<4x4xf32>) {
    %dx = stablehlo.dot_general %dy, %w, contracting_dims = [1] x [1]
        : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %dw = stablehlo.dot_general %x, %dy, contracting_dims = [0] x [0]
        : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
    %all = stablehlo.add %sum, %dw : tensor<4x4xf32>
    return %dx, %all : tensor<2x4xf32>, tensor<4x4xf32>
  }
})";

// The squared error of this device's rows, and the gradient of y.
constexpr char kLoss[] = R"(module @loss {
  func.func public @main(%y: tensor<2x4xf32>, %target: tensor<2x4xf32>)
      -> (tensor<1xf32>, tensor<2x4xf32>) {
    %dy = stablehlo.subtract %y, %target : tensor<2x4xf32>
    %squares = stablehlo.multiply %dy, %dy : tensor<2x4xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %sum = stablehlo.reduce(%squares init: %zero) applies stablehlo.add across dimensions = [0, 1]
        : (tensor<2x4xf32>, tensor<f32>) -> tensor<f32>
    %loss = stablehlo.reshape %sum : (tensor<f32>) -> tensor<1xf32>
    return %loss, %dy : tensor<1xf32>, tensor<2x4xf32>
  }
})";

// The weights after a step, from the gradients of both devices.
constexpr char kUpdate[] = R"(module @update {
  func.func public @main(%w: tensor<4x4xf32>, %dw: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %all = "stablehlo.all_reduce"(%dw) ({
    ^bb0(%left: tensor<f32>, %right: tensor<f32>):
      %both = stablehlo.add %left, %right : tensor<f32>
      stablehlo.return %both : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %rate = stablehlo.constant dense<0.01> : tensor<4x4xf32>
    %change = stablehlo.multiply %all, %rate : tensor<4x4xf32>
    %new = stablehlo.subtract %w, %change : tensor<4x4xf32>
    return %new : tensor<4x4xf32>
  }
})";

struct Stage {
  Stage(const gangway::Cluster& cluster, uint32_t first)
      : whole(gangway::Mesh({first, first + 1}, {{"rows", 2}})), rows(whole.mesh(), {"rows"}) {
    const auto compile = [&](const char* text, std::vector<gangway::Sharding> results) {
      return Value(cluster.Compile(text, whole.mesh(), {.results = std::move(results)}));
    };
    forward = compile(kForward, {rows});
    backward = compile(kBackward, {rows, whole});
    loss = compile(kLoss, {rows, rows});
    update = compile(kUpdate, {whole});
    zero = cluster.Put<float>(std::vector<float>(16), {4, 4}, whole);
  }
  gangway::Sharding whole, rows;  // of weights, and of microbatches
  gangway::Function forward, backward, loss, update;
  gangway::Array zero;  // the sum of no gradients
};

#endif  // EXAMPLES_CPP_PIPELINE_STAGE_H_
