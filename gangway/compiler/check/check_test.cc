// One valid program and the ways to break it, for each opcode and each part of a module.
#include "gangway/compiler/check/check.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"

#include "gangway/compiler/check/check_test_util.h"

namespace gangway::compiler {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

void ExpectTaken(const hlo::Module& module, Positions positions = {}) {
  const auto checked = Check(module, positions);
  EXPECT_TRUE(checked.ok()) << checked.status() << "\n" << module.DebugString().substr(0, 2000);
}

void ExpectRefused(const hlo::Module& module, absl::string_view why, Positions positions = {}) {
  const auto checked = Check(module, positions);
  ASSERT_FALSE(checked.ok()) << why << "\n" << module.DebugString().substr(0, 2000);
  EXPECT_TRUE(absl::StrContains(checked.status().message(), why)) << checked.status();
}

Edit Along(const Dims& dims) {
  return [=](hlo::Instruction& each) { Fill(each.mutable_dimensions(), dims); };
}

hlo::Instruction& RootOf(hlo::Module& module) {
  auto& entry = *module.mutable_computations(module.computations_size() - 1);
  return *entry.mutable_instructions(entry.instructions_size() - 1);
}

// The field, set to something that is not its default.
std::string TextOf(const google::protobuf::FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE:
      return field.name() + " {}";
    case google::protobuf::FieldDescriptor::CPPTYPE_STRING:
      return field.name() + ": 'x'";
    case google::protobuf::FieldDescriptor::CPPTYPE_BOOL:
      return field.name() + ": true";
    default:
      return field.name() + ": 1";
  }
}

TEST(ProgramCheckTest, Elementwise) {
  ExpectTaken(OneOp("add", F32({2}), {F32({2}), F32({2})}));
  ExpectRefused(OneOp("add", F32({2}), {F32({2}), F32({3})}), "operands differ");
  ExpectRefused(OneOp("add", F32({3}), {F32({2}), F32({2})}), "its operands give f32[2]");
  ExpectRefused(OneOp("add", F32({2}), {F32({2})}), "1 operands instead of 2");
  ExpectRefused(OneOp("add", F32({}), {Token(), Token()}), "not an array");
  ExpectRefused(OneOp("sine", S32({2}), {S32({2})}), "not defined for s32[2]");
  ExpectRefused(OneOp("not", F32({2}), {F32({2})}), "not defined");
  ExpectRefused(OneOp("shift-left", Pred({2}), {Pred({2}), Pred({2})}), "not defined");
  ExpectRefused(OneOp("maximum", C64({2}), {C64({2}), C64({2})}), "not defined");
  ExpectRefused(OneOp("remainder", C64({2}), {C64({2}), C64({2})}), "not defined");
  ExpectTaken(OneOp("abs", F32({2}), {C64({2})}));
  ExpectRefused(OneOp("abs", C64({2}), {C64({2})}), "its operands give f32[2]");
  ExpectTaken(OneOp("tanh", C64({2}), {C64({2})}));
  for (const char* opcode : {"acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"}) {
    ExpectTaken(OneOp(opcode, F32({2}), {F32({2})}));
    ExpectRefused(OneOp(opcode, C64({2}), {C64({2})}), "it is not defined for c64[2]");
  }
  ExpectTaken(OneOp("is-finite", Pred({2}), {F32({2})}));
  ExpectRefused(OneOp("is-finite", Pred({2}), {S32({2})}), "not defined");
  ExpectTaken(OneOp("imag", F32({2}), {C64({2})}));
  ExpectTaken(OneOp("complex", C64({2}), {F32({2}), F32({2})}));
  ExpectRefused(OneOp("complex", C64({2}), {S32({2}), S32({2})}), "not defined");
  ExpectTaken(OneOp("convert", S32({2}), {F32({2})}));
  ExpectRefused(OneOp("convert", S32({2}), {C64({2})}), "real part");
  ExpectTaken(OneOp("select", F32({2}), {Pred({2}), F32({2}), F32({2})}));
  ExpectRefused(OneOp("select", F32({2}), {Pred({3}), F32({2}), F32({2})}), "selects from");
  ExpectRefused(OneOp("select", F32({2}), {S32({2}), F32({2}), F32({2})}), "selects from");
  ExpectTaken(OneOp("clamp", F32({2}), {F32({}), F32({2}), F32({2})}));
  ExpectRefused(OneOp("clamp", F32({2}), {F32({3}), F32({2}), F32({2})}), "limits");
  const auto bits = [](int exponent) {
    return [=](hlo::Instruction& each) { each.set_exponent_bits(exponent); };
  };
  ExpectTaken(OneOp("reduce-precision", F32({2}), {F32({2})}, bits(5)));
  ExpectRefused(OneOp("reduce-precision", F32({2}), {F32({2})}, bits(0)), "exponent bits");
}

TEST(ProgramCheckTest, BitcastsKeepTheirBits) {
  const auto u8 = [](const Dims& dims) { return Array(xla::TYPE_U8, dims); };
  ExpectTaken(OneOp("bitcast-convert", u8({2, 4}), {F32({2})}));
  ExpectTaken(OneOp("bitcast-convert", F32({2}), {u8({2, 4})}));
  ExpectTaken(OneOp("bitcast-convert", S32({2}), {F32({2})}));
  ExpectRefused(OneOp("bitcast-convert", u8({2, 8}), {F32({2})}), "as many bits");
  ExpectRefused(OneOp("bitcast-convert", u8({8}), {F32({2})}), "as many bits");
  ExpectRefused(OneOp("bitcast-convert", C64({2}), {Array(xla::TYPE_F64, {2})}), "common bits");
}

TEST(ProgramCheckTest, Comparisons) {
  const auto compare = [](std::string direction, std::string type, std::string order = "") {
    return [=](hlo::Instruction& each) {
      each.set_comparison_direction(direction);
      each.set_comparison_type(type);
      each.set_comparison_order(order);
    };
  };
  const auto of = [&](const hlo::Shape& shape, const Edit& edit) {
    return OneOp("compare", Pred({2}), {shape, shape}, edit);
  };
  ExpectTaken(of(F32({2}), compare("LT", "TOTALORDER", "TOTAL")));
  ExpectTaken(of(F32({2}), compare("LT", "FLOAT", "PARTIAL")));
  ExpectTaken(of(C64({2}), compare("EQ", "FLOAT")));
  ExpectRefused(of(F32({2}), compare("LT", "FLOAT", "TOTAL")), "order does not fit");
  ExpectRefused(of(F32({2}), compare("LT", "SIGNED")), "type does not fit");
  ExpectRefused(of(S32({2}), compare("LT", "UNSIGNED")), "type does not fit");
  ExpectRefused(of(S32({2}), compare("XX", "SIGNED")), "direction is not known");
  ExpectRefused(of(C64({2}), compare("LT", "FLOAT")), "have no order");
  ExpectRefused(OneOp("compare", Pred({3}), {F32({2}), F32({2})}, compare("LT", "FLOAT")),
                "its operands give pred[2]");
}

TEST(ProgramCheckTest, Arrangement) {
  ExpectTaken(OneOp("broadcast", F32({3, 2}), {F32({2})}, Along({1})));
  ExpectRefused(OneOp("broadcast", F32({3, 2}), {F32({2})}, Along({0})), "becomes dimension 0");
  ExpectRefused(OneOp("broadcast", F32({3, 2}), {F32({2})}, Along({2})), "do not map");
  ExpectRefused(OneOp("broadcast", F32({3, 2}), {F32({2})}), "do not map");
  ExpectRefused(OneOp("broadcast", F32({2, 2}), {F32({2, 2})}, Along({0, 0})), "do not map");
  ExpectTaken(OneOp("reshape", F32({6}), {F32({2, 3})}));
  ExpectRefused(OneOp("reshape", F32({7}), {F32({2, 3})}), "it makes f32[7] of f32[2,3]");
  ExpectTaken(OneOp("transpose", F32({3, 2}), {F32({2, 3})}, Along({1, 0})));
  ExpectRefused(OneOp("transpose", F32({3, 2}), {F32({2, 3})}, Along({1, 1})), "no permutation");
  ExpectRefused(OneOp("transpose", F32({2, 3}), {F32({2, 3})}, Along({1, 0})), "give f32[3,2]");
  ExpectTaken(OneOp("reverse", F32({2, 3}), {F32({2, 3})}, Along({1})));
  ExpectRefused(OneOp("reverse", F32({2, 3}), {F32({2, 3})}, Along({2})), "does not have");
  ExpectTaken(OneOp("iota", S32({2, 3}), {}, Along({1})));
  ExpectRefused(OneOp("iota", S32({2, 3}), {}, Along({-1})), "name a dimension");
  ExpectTaken(OneOp("concatenate", F32({5}), {F32({2}), F32({3})}, Along({0})));
  ExpectRefused(OneOp("concatenate", F32({6}), {F32({2}), F32({3})}, Along({0})), "give f32[5]");
  ExpectRefused(OneOp("concatenate", F32({5}), {F32({2}), S32({3})}, Along({0})), "joins");
  const auto s2 = [](int64_t size) { return Array(xla::TYPE_S2, {size}); };
  ExpectRefused(OneOp("concatenate", s2(5), {s2(2), s2(3)}, Along({0})), "less than 4 bits");
  ExpectRefused(OneOp("concatenate", F32({2, 5}), {F32({2, 2}), F32({1, 3})}, Along({1})), "joins");
  ExpectRefused(OneOp("concatenate", F32({5}), {F32({2}), F32({3})}, Along({1})),
                "name a dimension");
  ExpectRefused(OneOp("concatenate", F32({}), {}), "no operands");
}

TEST(ProgramCheckTest, Slices) {
  const auto slice = [](int64_t start, int64_t limit, int64_t stride) {
    return [=](hlo::Instruction& each) {
      auto& by = *each.add_slice_dimensions();
      by.set_start(start);
      by.set_limit(limit);
      by.set_stride(stride);
    };
  };
  ExpectTaken(OneOp("slice", F32({2}), {F32({9})}, slice(1, 4, 2)));
  ExpectRefused(OneOp("slice", F32({3}), {F32({9})}, slice(1, 4, 2)), "give f32[2]");
  ExpectRefused(OneOp("slice", F32({3}), {F32({9})}, slice(8, 11, 1)), "elements 8 to 11");
  ExpectRefused(OneOp("slice", F32({3}), {F32({9})}, slice(-3, 0, 1)), "elements -3 to 0");
  ExpectRefused(OneOp("slice", F32({3}), {F32({9})}, slice(0, 3, 0)), "steps of 0");
  ExpectRefused(OneOp("slice", F32({0}), {F32({9})}, slice(3, 2, 1)), "elements 3 to 2");
  ExpectTaken(OneOp("slice", F32({1}), {F32({9})}, slice(0, 9, kHuge)));
  const auto sizes = [](const Dims& dims) {
    return [=](hlo::Instruction& each) { Fill(each.mutable_dynamic_slice_sizes(), dims); };
  };
  ExpectTaken(OneOp("dynamic-slice", F32({2, 3}), {F32({4, 3}), S32({}), S32({})}, sizes({2, 3})));
  ExpectRefused(OneOp("dynamic-slice", F32({5, 3}), {F32({4, 3}), S32({}), S32({})}, sizes({5, 3})),
                "5 elements of dimension 0");
  ExpectRefused(OneOp("dynamic-slice", F32({2, 3}), {F32({4, 3}), S32({2})}, sizes({2, 3})),
                "start indices");
  ExpectRefused(OneOp("dynamic-slice", F32({2}), {F32({4}), F32({})}, sizes({2})), "start index 0");
  ExpectTaken(OneOp("dynamic-update-slice", F32({4}), {F32({4}), F32({2}), S32({})}));
  ExpectRefused(OneOp("dynamic-update-slice", F32({4}), {F32({4}), F32({5}), S32({})}),
                "writes f32[5] into f32[4]");
}

TEST(ProgramCheckTest, Padding) {
  const auto pad = [](int64_t low, int64_t high, int64_t interior) {
    return [=](hlo::Instruction& each) {
      auto& by = *each.mutable_padding_config()->add_dimensions();
      by.set_edge_padding_low(low);
      by.set_edge_padding_high(high);
      by.set_interior_padding(interior);
    };
  };
  ExpectTaken(OneOp("pad", F32({9}), {F32({3}), F32({})}, pad(1, -1, 3)));
  ExpectRefused(OneOp("pad", F32({8}), {F32({3}), F32({})}, pad(1, -1, 3)), "give f32[9]");
  ExpectRefused(OneOp("pad", F32({8}), {F32({3}), S32({})}, pad(1, -1, 3)), "pads f32[3] with");
  ExpectRefused(OneOp("pad", F32({0}), {F32({3}), F32({})}, pad(-2, -2, 0)), "no possible size");
  ExpectRefused(OneOp("pad", F32({1}), {F32({3}), F32({})}, pad(kHuge, -kHuge, 0)), "no possible");
  ExpectRefused(OneOp("pad", F32({1}), {F32({3}), F32({})}, pad(0, 0, kHuge)), "no possible size");
  ExpectRefused(OneOp("pad", F32({3}), {F32({3}), F32({})}), "pads 0 dimensions");
}

struct GatherBy {
  Dims offset = {1}, collapsed = {0}, map = {0}, batching = {}, index_batching = {};
  int64_t vector = 1;
  Dims sizes = {1, 4};
};

Edit Gathering(const GatherBy& by) {
  return [=](hlo::Instruction& each) {
    auto& numbers = *each.mutable_gather_dimension_numbers();
    Fill(numbers.mutable_offset_dims(), by.offset);
    Fill(numbers.mutable_collapsed_slice_dims(), by.collapsed);
    Fill(numbers.mutable_start_index_map(), by.map);
    Fill(numbers.mutable_operand_batching_dims(), by.batching);
    Fill(numbers.mutable_start_indices_batching_dims(), by.index_batching);
    numbers.set_index_vector_dim(by.vector);
    Fill(each.mutable_gather_slice_sizes(), by.sizes);
  };
}

TEST(ProgramCheckTest, Gathers) {
  const auto of = [](const hlo::Shape& result, const GatherBy& by) {
    return OneOp("gather", result, {F32({9, 4}), S32({5, 1})}, Gathering(by));
  };
  ExpectTaken(of(F32({5, 4}), {}));
  ExpectRefused(of(F32({5, 5}), {}), "give f32[5,4]");
  ExpectRefused(of(F32({5, 5}), {.sizes = {1, 5}}), "5 elements of dimension 1");
  ExpectRefused(of(F32({5, 4}), {.sizes = {2, 4}}), "2 elements of dimension 0");
  ExpectRefused(of(F32({5, 4}), {.sizes = {1, -4}}), "-4 elements");
  ExpectRefused(of(F32({5, 4}), {.sizes = {0, 4}}), "0 elements of dimension 0");
  ExpectRefused(of(F32({5, 4}), {.map = {2}}), "do not map");
  ExpectRefused(of(F32({5, 4}), {.map = {0, 1}}), "do not map");
  ExpectRefused(of(F32({5, 4}), {.offset = {7}}), "offset_dims");
  ExpectRefused(of(F32({5, 4}), {.offset = {}}), "offset_dims");
  ExpectRefused(of(F32({5, 4}), {.collapsed = {9}}), "collapsed dimensions");
  ExpectRefused(of(F32({5, 4}), {.vector = 3}), "index_vector_dim");
  ExpectRefused(of(F32({5, 4}), {.batching = {1}, .index_batching = {0}}), "different sizes");
  ExpectRefused(of(F32({5, 4}), {.batching = {1}}), "batching dimensions");
  ExpectRefused(OneOp("gather", F32({5, 4}), {F32({9, 4}), F32({5, 1})}, Gathering({})),
                "its indices are");
}

TEST(ProgramCheckTest, Scatters) {
  const auto by = [](const Dims& window, const Dims& inserted, const Dims& map) {
    return [=](hlo::Instruction& each) {
      auto& numbers = *each.mutable_scatter_dimension_numbers();
      Fill(numbers.mutable_update_window_dims(), window);
      Fill(numbers.mutable_inserted_window_dims(), inserted);
      Fill(numbers.mutable_scatter_dims_to_operand_dims(), map);
      numbers.set_index_vector_dim(1);
    };
  };
  const std::vector<hlo::Shape> operands = {F32({9, 4}), S32({5, 1}), F32({5, 4})};
  ExpectTaken(OneOp("scatter", F32({9, 4}), operands, by({1}, {0}, {0}), {Adder()}));
  ExpectRefused(OneOp("scatter", F32({9, 4}), operands, by({0}, {0}, {0}), {Adder()}),
                "its windows have 5 elements");
  ExpectRefused(OneOp("scatter", F32({9, 4}), operands, by({1}, {}, {0}), {Adder()}),
                "update_window_dims");
  ExpectRefused(OneOp("scatter", F32({9, 4}), operands, by({1}, {0}, {2}), {Adder()}),
                "do not map");
  ExpectRefused(OneOp("scatter", F32({9, 4}), operands, by({1}, {0}, {0}), {Adder(xla::TYPE_S32)}),
                "parameter 0 of its computation");
  ExpectRefused(OneOp("scatter", F32({9, 4}), {F32({9, 4}), S32({6, 1}), F32({5, 4})},
                      by({1}, {0}, {0}), {Adder()}),
                "its updates are");
  ExpectRefused(OneOp("scatter", F32({9, 4}), {S32({5, 1})}, by({1}, {0}, {0}), {Adder()}),
                "it has 1 operands");
  ExpectRefused(
      OneOp("scatter", F32({9, 4}), {F32({9, 4}), S32({5, 1})}, by({1}, {0}, {0}), {Adder()}),
      "2 operands");
}

Edit Window(int64_t size, int64_t stride = 1, int64_t low = 0, int64_t high = 0, int64_t base = 1,
            int64_t dilation = 1) {
  return [=](hlo::Instruction& each) {
    auto& window = *each.mutable_window()->add_dimensions();
    window.set_size(size);
    window.set_stride(stride);
    window.set_padding_low(low);
    window.set_padding_high(high);
    window.set_base_dilation(base);
    window.set_window_dilation(dilation);
  };
}

TEST(ProgramCheckTest, ReducedWindows) {
  const auto of = [](int64_t result, const Edit& window) {
    return OneOp("reduce-window", F32({result}), {F32({8}), F32({})}, window, {Adder()});
  };
  ExpectTaken(of(4, Window(2, 2)));
  ExpectTaken(of(7, Window(2, 2, 0, 0, 2)));
  ExpectRefused(of(5, Window(2, 2)), "give f32[4]");
  for (const Edit& window : {Window(0), Window(2, 0), Window(2, 1, 0, 0, 0), Window(2, 1, -9),
                             Window(2, 1, 0, 0, 1, 0), Window(kHuge), Window(2, 1, kHuge, kHuge)})
    ExpectRefused(of(4, window), "window does not fit");
  ExpectTaken(OneOp("select-and-scatter", F32({8}), {F32({8}), F32({4}), F32({})}, Window(2, 2),
                    {Comparing("GE", "FLOAT"), Adder()}));
  ExpectRefused(OneOp("select-and-scatter", F32({8}), {F32({8}), F32({5}), F32({})}, Window(2, 2),
                      {Comparing("GE", "FLOAT"), Adder()}),
                "windows give f32[4]");
  ExpectRefused(OneOp("select-and-scatter", F32({8}), {F32({8}), F32({5}), F32({})},
                      Window(2, 2, 2), {Comparing("GE", "FLOAT"), Adder()}),
                "no element");
  ExpectRefused(OneOp("select-and-scatter", F32({8}), {F32({8}), F32({4}), F32({})}, Window(2, 2),
                      {Adder(), Adder()}),
                "its computation gives");
}

Edit Convolving(int64_t features = 1, int64_t batches = 1, int64_t size = 3) {
  return [=](hlo::Instruction& each) {
    Window(size)(each);
    auto& numbers = *each.mutable_convolution_dimension_numbers();
    numbers.set_input_batch_dimension(0);
    numbers.set_input_feature_dimension(1);
    numbers.add_input_spatial_dimensions(2);
    numbers.set_kernel_output_feature_dimension(0);
    numbers.set_kernel_input_feature_dimension(1);
    numbers.add_kernel_spatial_dimensions(2);
    numbers.set_output_batch_dimension(0);
    numbers.set_output_feature_dimension(1);
    numbers.add_output_spatial_dimensions(2);
    each.set_feature_group_count(features);
    each.set_batch_group_count(batches);
  };
}

TEST(ProgramCheckTest, Convolutions) {
  const auto of = [](const Dims& result, const Dims& kernel, const Edit& edit) {
    return OneOp("convolution", F32(result), {F32({2, 4, 8}), F32(kernel)}, edit);
  };
  ExpectTaken(of({2, 6, 6}, {6, 4, 3}, Convolving()));
  ExpectTaken(of({2, 6, 6}, {6, 2, 3}, Convolving(2)));
  ExpectTaken(of({1, 6, 6}, {6, 4, 3}, Convolving(1, 2)));
  ExpectRefused(of({2, 6, 7}, {6, 4, 3}, Convolving()), "does not fit spatial dimension 0");
  ExpectRefused(of({2, 5, 6}, {6, 4, 3}, Convolving()), "its shape is f32[2,5,6]");
  ExpectRefused(of({2, 6, 6}, {6, 3, 3}, Convolving()), "convolves 4 features");
  ExpectRefused(of({2, 6, 6}, {6, 1, 3}, Convolving(3)), "convolves 4 features");
  ExpectRefused(of({2, 6, 6}, {6, 4, 3}, Convolving(1, 3)), "divides a batch of 2");
  ExpectRefused(of({2, 6, 6}, {6, 2, 3}, Convolving(2, 2)), "groups of features and 2");
  ExpectRefused(of({2, 6, 6}, {6, 4, 3}, Convolving(-1)), "groups of features");
  ExpectRefused(of({2, 6, 5}, {6, 4, 3}, Convolving(1, 1, 4)), "does not fit spatial dimension 0");
  hlo::Module twice = of({2, 6, 6}, {6, 4, 3}, Convolving());
  RootOf(twice).mutable_convolution_dimension_numbers()->set_input_feature_dimension(0);
  ExpectRefused(twice, "do not name each dimension");
}

TEST(ProgramCheckTest, Dots) {
  const auto by = [](const Dims& lhs, const Dims& rhs, const Dims& lhs_batch = {},
                     const Dims& rhs_batch = {}) {
    return [=](hlo::Instruction& each) {
      auto& numbers = *each.mutable_dot_dimension_numbers();
      Fill(numbers.mutable_lhs_contracting_dimensions(), lhs);
      Fill(numbers.mutable_rhs_contracting_dimensions(), rhs);
      Fill(numbers.mutable_lhs_batch_dimensions(), lhs_batch);
      Fill(numbers.mutable_rhs_batch_dimensions(), rhs_batch);
    };
  };
  const std::vector<hlo::Shape> operands = {F32({2, 3, 4}), F32({2, 4, 5})};
  ExpectTaken(OneOp("dot", F32({2, 3, 5}), operands, by({2}, {1}, {0}, {0})));
  ExpectRefused(OneOp("dot", F32({2, 3, 6}), operands, by({2}, {1}, {0}, {0})), "give f32[2,3,5]");
  ExpectRefused(OneOp("dot", F32({2, 3, 5}), operands, by({1}, {1}, {0}, {0})),
                "dimension numbers");
  ExpectRefused(OneOp("dot", F32({2, 3, 5}), operands, by({3}, {1}, {0}, {0})),
                "dimension numbers");
  ExpectRefused(OneOp("dot", F32({2, 3, 5}), operands, by({2}, {1}, {2}, {0})),
                "dimension numbers");
  ExpectRefused(OneOp("dot", S32({2, 3, 5}), operands, by({2}, {1}, {0}, {0})), "it makes s32");
}

TEST(ProgramCheckTest, TransformsAndSolvers) {
  const auto fft = [](int kind, const Dims& lengths) {
    return [=](hlo::Instruction& each) {
      each.set_fft_type(kind);
      Fill(each.mutable_fft_length(), lengths);
    };
  };
  ExpectTaken(OneOp("fft", C64({2, 8}), {C64({2, 8})}, fft(0, {8})));
  ExpectTaken(OneOp("fft", C64({2, 5}), {F32({2, 8})}, fft(2, {8})));
  ExpectTaken(OneOp("fft", F32({2, 8}), {C64({2, 5})}, fft(3, {8})));
  ExpectRefused(OneOp("fft", C64({2, 8}), {C64({2, 8})}, fft(0, {9})), "length 9");
  ExpectRefused(OneOp("fft", C64({2, 8}), {F32({2, 8})}, fft(2, {8})), "give c64[2,5]");
  ExpectRefused(OneOp("fft", C64({2, 8}), {C64({2, 8})}, fft(4, {8})), "kind is 4");
  ExpectRefused(OneOp("fft", C64({0}), {C64({0})}, fft(0, {0})), "lengths do not fit");
  ExpectTaken(OneOp("cholesky", F32({2, 3, 3}), {F32({2, 3, 3})}));
  ExpectRefused(OneOp("cholesky", F32({2, 3, 4}), {F32({2, 3, 4})}), "square matrices");
  const auto solve = [](bool left) {
    return [=](hlo::Instruction& each) {
      each.mutable_triangular_solve_options()->set_left_side(left);
      each.mutable_triangular_solve_options()->set_transpose_a(1);
    };
  };
  ExpectTaken(OneOp("triangular-solve", F32({3, 5}), {F32({3, 3}), F32({3, 5})}, solve(true)));
  ExpectRefused(OneOp("triangular-solve", F32({3, 5}), {F32({3, 3}), F32({3, 5})}, solve(false)),
                "it solves");
  ExpectRefused(OneOp("triangular-solve", F32({3, 5}), {F32({3, 3}), F32({3, 5})}), "transposes");
  const auto norm = [](int64_t feature) {
    return [=](hlo::Instruction& each) { each.set_feature_index(feature); };
  };
  const auto one = F32({4}), many = F32({2, 4});
  ExpectTaken(OneOp("batch-norm-training", TupleOf({many, one, one}), {many, one, one}, norm(1)));
  ExpectRefused(OneOp("batch-norm-training", TupleOf({many, one, one}), {many, one, one}, norm(2)),
                "feature dimension 2");
  ExpectTaken(OneOp("batch-norm-inference", many, {many, one, one, one, one}, norm(1)));
  ExpectRefused(OneOp("batch-norm-inference", many, {many, one, one, one, F32({5})}, norm(1)),
                "operand 4 is f32[5]");
  ExpectTaken(
      OneOp("batch-norm-grad", TupleOf({many, one, one}), {many, one, one, one, many}, norm(1)));
  ExpectRefused(
      OneOp("batch-norm-grad", TupleOf({many, one, one}), {many, one, one, one, one}, norm(1)),
      "its gradient");
}

TEST(ProgramCheckTest, CalledComputations) {
  ExpectTaken(OneOp("call", F32({}), {F32({}), F32({})}, {}, {Adder()}));
  ExpectRefused(OneOp("call", F32({}), {F32({})}, {}, {Adder()}), "of 2 parameters with 1");
  ExpectRefused(OneOp("call", F32({}), {F32({}), S32({})}, {}, {Adder()}), "parameter 1");
  ExpectRefused(OneOp("call", F32({2}), {F32({}), F32({})}, {}, {Adder()}), "give f32[]");
  ExpectRefused(OneOp("call", F32({}), {F32({}), F32({})}), "calls 0 computations");
  const auto same = OneCall("negate", S32({}), {S32({})});
  const auto until = OneCall("compare", Pred({}), {S32({})}, [](hlo::Instruction& each) {
    each.add_operand_ids(each.operand_ids(0));
    each.set_comparison_direction("LT");
    each.set_comparison_type("SIGNED");
  });
  ExpectTaken(OneOp("while", S32({}), {S32({})}, {}, {same, until}));
  ExpectRefused(OneOp("while", S32({}), {S32({})}, {}, {same, same}), "its condition gives");
  ExpectRefused(OneOp("while", S32({}), {S32({})}, {}, {until, until}), "its body makes");
  ExpectTaken(OneOp("conditional", S32({}), {Pred({}), S32({}), S32({})}, {}, {same, same}));
  ExpectTaken(OneOp("conditional", S32({}), {S32({}), S32({})}, {}, {same}));
  ExpectRefused(OneOp("conditional", S32({}), {Pred({}), S32({})}, {}, {same}), "1 branches");
  ExpectRefused(OneOp("conditional", S32({}), {S32({}), S32({})}, {}, {same, same}),
                "2 operands for 2 branches");
  ExpectRefused(OneOp("conditional", S32({}), {S32({}), F32({})}, {}, {same}), "branch 0");
  ExpectRefused(OneOp("conditional", S32({}), {S32({})}, {}, {}), "0 branches");
  ExpectTaken(OneOp("map", F32({3}), {F32({3}), F32({3})}, Along({0}), {Adder()}));
  ExpectRefused(OneOp("map", F32({3}), {F32({3}), F32({3})}, Along({}), {Adder()}),
                "all dimensions");
  ExpectTaken(OneOp("reduce", F32({3}), {F32({2, 3}), F32({})}, Along({0}), {Adder()}));
  ExpectRefused(OneOp("reduce", F32({2}), {F32({2, 3}), F32({})}, Along({0}), {Adder()}),
                "give f32[3]");
  ExpectRefused(OneOp("reduce", F32({3}), {F32({2, 3}), F32({})}, Along({2}), {Adder()}),
                "does not have");
  ExpectRefused(OneOp("reduce", F32({3}), {F32({2, 3}), F32({2})}, Along({0}), {Adder()}),
                "reduces f32[2,3] from");
  ExpectRefused(OneOp("reduce", F32({3}), {F32({2, 3}), F32({})}, Along({0}),
                      {OneCall("rng", F32({}), {F32({}), F32({})},
                               [](hlo::Instruction& rng) { rng.set_distribution(1); })}),
                "random numbers");
  ExpectRefused(OneOp("reduce", F32({3}), {F32({2, 3}), F32({})}, Along({0}),
                      {OneCall("dot", F32({}), {F32({}), F32({})})}),
                "operations on whole arrays");
}

TEST(ProgramCheckTest, CallsDoNotNestOrMultiplyWithoutEnd) {
  const auto chain = [](int length, int calls_each) {
    hlo::Module module;
    module.set_name("module");
    for (int i = 0; i < length; ++i) {
      hlo::Computation& next = *module.add_computations();
      next = Named(absl::StrCat("called.", i), {F32({})});
      next.set_id(i + 1);
      for (int k = 0; i > 0 && k < calls_each; ++k)
        AddTo(next, "call", F32({}), {1}).add_called_computation_ids(i);
    }
    hlo::Computation entry = Named("entry", {F32({})});
    AddTo(entry, "call", F32({}), {1}).add_called_computation_ids(length);
    Close(module, entry);
    return module;
  };
  const auto loops = [](int length) {
    hlo::Module module;
    module.set_name("module");
    hlo::Computation& until = *module.add_computations();
    until = OneCall("compare", Pred({}), {F32({})}, [](hlo::Instruction& each) {
      each.add_operand_ids(each.operand_ids(0));
      each.set_comparison_direction("LT");
      each.set_comparison_type("FLOAT");
    });
    until.set_id(1);
    for (int i = 0; i <= length; ++i) {
      hlo::Computation next = Named(i < length ? absl::StrCat("body.", i) : "entry", {F32({})});
      next.set_id(i + 2);
      if (i > 0) {
        hlo::Instruction& loop = AddTo(next, "while", F32({}), {1});
        loop.add_called_computation_ids(i + 1);
        loop.add_called_computation_ids(1);
      }
      if (i == length) {
        Close(module, next);
      } else {
        *module.add_computations() = next;
      }
    }
    return module;
  };
  ExpectTaken(loops(64));
  ExpectRefused(loops(65), "loops and branches are nested deeper than 64");
  ExpectTaken(chain(200, 1));
  ExpectRefused(chain(300, 1), "nested deeper than 256");
  ExpectTaken(chain(15, 2));
  ExpectRefused(chain(60, 2), "use a loop");
  hlo::Module recursive = chain(3, 1);
  recursive.mutable_computations(0)->CopyFrom(recursive.computations(1));
  recursive.mutable_computations(0)->set_id(1);
  recursive.mutable_computations(0)->mutable_instructions(1)->set_called_computation_ids(0, 1);
  ExpectRefused(recursive, "does not come before");
  hlo::Module of_entry = chain(2, 1);
  of_entry.set_entry_computation_id(2);
  ExpectRefused(of_entry, "called from inside");
}

// Two megabytes, whose calls would be compared with 2 x 10^9 arrays.
TEST(ProgramCheckTest, LongSignaturesAreNotComparedWithoutEnd) {
  const hlo::Shape wide = TupleOf(std::vector<hlo::Shape>(50'000, F32({})));
  hlo::Module module;
  module.set_name("module");
  hlo::Computation& called = *module.add_computations();
  called = Named("called", {wide, F32({})});
  called.set_id(1);
  hlo::Computation entry = Named("entry", {wide, F32({})});
  for (int i = 0; i < 40'000; ++i)
    AddTo(entry, "call", F32({}), {1, 2}).add_called_computation_ids(1);
  Close(module, entry);
  ExpectRefused(module, "pass more than 100000000 arrays");
}

hlo::Module SortBy(const hlo::Computation& comparator, const hlo::Shape& keys) {
  return OneOp("sort", keys, {keys}, Along({0}), {comparator});
}

TEST(ProgramCheckTest, Sorts) {
  const auto s32 = xla::TYPE_S32;
  ExpectTaken(SortBy(Comparing("LT", "SIGNED", s32), S32({8})));
  ExpectRefused(OneOp("sort", S32({8}), {S32({8})}, Along({1}), {Comparing("LT", "SIGNED", s32)}),
                "name a dimension");
  ExpectRefused(SortBy(Comparing("LT", "SIGNED", s32), F32({8})), "parameter 0 of its computation");
  ExpectRefused(SortBy(Adder(s32), S32({8})), "its computation gives s32[]");
  ExpectRefused(SortBy(OneCall("custom-call", Pred({}), {S32({}), S32({})}), S32({8})),
                "has custom calls");
}

TEST(ProgramCheckTest, ComparatorsThatAreNoOrderWantStableSorts) {
  const auto wants = [](const hlo::Computation& comparator, const hlo::Shape& keys) {
    const auto checked = Check(SortBy(comparator, keys));
    EXPECT_TRUE(checked.ok()) << checked.status();
    return checked.ok() && checked->wants_stable_sorts;
  };
  const auto s32 = xla::TYPE_S32;
  EXPECT_FALSE(wants(Comparing("LT", "SIGNED", s32), S32({8})));
  EXPECT_FALSE(wants(Comparing("GT", "SIGNED", s32), S32({8})));
  EXPECT_FALSE(wants(Comparing("LT", "TOTALORDER"), F32({8})));
  EXPECT_TRUE(wants(Comparing("LE", "SIGNED", s32), S32({8})));
  EXPECT_TRUE(wants(Comparing("EQ", "SIGNED", s32), S32({8})));
  EXPECT_TRUE(wants(Comparing("LT", "FLOAT"), F32({8})));  // NaN
  hlo::Computation itself = Comparing("LT", "SIGNED", s32);
  itself.mutable_instructions(2)->set_operand_ids(1, 1);
  EXPECT_TRUE(wants(itself, S32({8})));
  hlo::Computation uneven = Named("called", {S32({}), S32({})});
  AddTo(uneven, "negate", S32({}), {1});
  hlo::Instruction& compare = AddTo(uneven, "compare", Pred({}), {3, 2});
  compare.set_comparison_direction("LT");
  EXPECT_TRUE(wants(uneven, S32({8})));
  hlo::Computation even = uneven;
  even.mutable_instructions()->RemoveLast();
  AddTo(even, "negate", S32({}), {2});
  AddTo(even, "compare", Pred({}), {3, 4}).set_comparison_direction("GT");
  EXPECT_FALSE(wants(even, S32({8})));
}

// By the first key, and then by the second, as JAX writes it; with an error in each part.
TEST(ProgramCheckTest, LexicographicComparatorsAreRecognized) {
  struct By {
    std::string first = "LT", equal = "EQ", next = "LT";
    Dims equal_of = {1, 2};
  };
  const auto wants = [](const By& by) {
    hlo::Computation order = Named("called", {S32({}), S32({}), U32({}), U32({})});
    AddTo(order, "compare", Pred({}), {1, 2}).set_comparison_direction(by.first);
    AddTo(order, "compare", Pred({}), by.equal_of).set_comparison_direction(by.equal);
    AddTo(order, "compare", Pred({}), {3, 4}).set_comparison_direction(by.next);
    AddTo(order, "and", Pred({}), {6, 7});
    AddTo(order, "or", Pred({}), {5, 8});
    const auto checked = Check(
        OneOp("sort", TupleOf({S32({8}), U32({8})}), {S32({8}), U32({8})}, Along({0}), {order}));
    EXPECT_TRUE(checked.ok()) << checked.status();
    return checked.ok() && checked->wants_stable_sorts;
  };
  EXPECT_FALSE(wants({}));
  EXPECT_FALSE(wants({.first = "GT", .next = "GT", .equal_of = {2, 1}}));
  EXPECT_TRUE(wants({.first = "LE"}));
  EXPECT_TRUE(wants({.equal = "NE"}));
  EXPECT_TRUE(wants({.next = "LE"}));
  EXPECT_TRUE(wants({.equal_of = {3, 4}}));
}

TEST(ProgramCheckTest, StableSortsWantNothing) {
  const hlo::Module module = SortBy(Comparing("LE", "SIGNED", xla::TYPE_S32), S32({8}));
  const auto stable = WithChanges(module.SerializeAsString(), {.wants_stable_sorts = true});
  ASSERT_TRUE(stable.ok()) << stable.status();
  const auto checked = CheckProgram(*stable, TakeAnyCall);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_FALSE(checked->wants_stable_sorts);
  EXPECT_FALSE(WithChanges("\x0a\xff", {}).ok());
}

Edit Groups(const std::vector<Dims>& groups, int64_t channel = 1, bool is_global = true) {
  return [=](hlo::Instruction& each) {
    each.set_channel_id(channel);
    each.set_use_global_device_ids(is_global);
    Fill(each.mutable_dimensions(), {0});
    for (const Dims& group : groups) Fill(each.add_replica_groups()->mutable_replica_ids(), group);
  };
}

TEST(ProgramCheckTest, Collectives) {
  const Positions four{.replicas = 1, .partitions = 4};
  const auto taken = [&](const hlo::Module& module) {
    const auto checked = Check(module, four);
    EXPECT_TRUE(checked.ok()) << checked.status();
  };
  const auto reduce = [](const Edit& edit) {
    return OneOp("all-reduce", F32({4}), {F32({4})}, edit, {Adder()});
  };
  taken(reduce(Groups({{0, 1}, {2, 3}})));
  ExpectRefused(reduce(Groups({{0, 1}, {2, 2}})), "each id from 0 to 3", four);
  ExpectRefused(reduce(Groups({{0, 1}, {2, 4}})), "each id from 0 to 3", four);
  ExpectRefused(reduce(Groups({{0, 1}, {}})), "is empty", four);
  ExpectRefused(reduce(Groups({{0, 1}})), "2 members, and the program 4", four);
  ExpectRefused(reduce(Groups({{0, 1, 2, 3}}, 0)), "without a channel", four);
  ExpectRefused(OneOp("all-reduce", F32({4}), {F32({4})}, Groups({}), {Adder(xla::TYPE_S32)}),
                "parameter 0 of its computation", four);
  taken(OneOp("all-gather", F32({8}), {F32({4})}, Groups({{0, 1}, {2, 3}})));
  ExpectRefused(OneOp("all-gather", F32({12}), {F32({4})}, Groups({{0, 1}, {2, 3}})),
                "in groups of 2", four);
  ExpectRefused(OneOp("all-gather", F32({0}), {F32({0})}, Groups({{0}, {1}, {2}, {3}})),
                "no elements, and one member", four);
  taken(OneOp("reduce-scatter", F32({2}), {F32({4})}, Groups({{0, 1}, {2, 3}}), {Adder()}));
  ExpectRefused(OneOp("reduce-scatter", F32({4}), {F32({4})}, Groups({{0, 1}, {2, 3}}), {Adder()}),
                "in groups of 2", four);
  taken(OneOp("all-to-all", F32({4}), {F32({4})}, Groups({{0, 1}, {2, 3}}, 1, false)));
  ExpectRefused(OneOp("all-to-all", F32({5}), {F32({5})}, Groups({{0, 1}, {2, 3}}, 1, false)),
                "splits", four);
  const auto permute = [](int64_t source, int64_t target) {
    return OneOp("collective-permute", F32({4}), {F32({4})}, [=](hlo::Instruction& each) {
      each.set_channel_id(1);
      auto& first = *each.add_source_target_pairs();
      first.set_source(0);
      first.set_target(1);
      auto& second = *each.add_source_target_pairs();
      second.set_source(source);
      second.set_target(target);
    });
  };
  taken(permute(1, 0));
  ExpectRefused(permute(1, 1), "name a position twice", four);
  ExpectRefused(permute(4, 0), "outside of the program's 4", four);
  ExpectRefused(permute(-1, 0), "outside", four);
  taken(OneOp("partition-id", U32({}), {}));
  ExpectRefused(OneOp("partition-id", S32({}), {}), "give u32[]", four);
}

TEST(ProgramCheckTest, GroupsInOtherForms) {
  const Positions four{.replicas = 1, .partitions = 4};
  hlo::Module module = OneOp("all-gather", F32({8}), {F32({4})}, Groups({}));
  auto& iota = *RootOf(module).mutable_iota_collective_device_list();
  iota.set_num_replica_groups(2);
  iota.set_num_devices_per_group(2);
  Fill(iota.mutable_iota_reshape_dims(), {2, 2});
  Fill(iota.mutable_iota_transpose_perm(), {1, 0});
  EXPECT_TRUE(Check(module, four).ok()) << Check(module, four).status();
  Fill(iota.mutable_iota_transpose_perm(), {1, 1});
  ExpectRefused(module, "not a transposition", four);
  iota.set_num_replica_groups(kHuge);
  ExpectRefused(module, "groups of 2", four);
  RootOf(module).clear_iota_collective_device_list();
  auto& mesh = *RootOf(module).mutable_mesh_axes_replica_group_list();
  mesh.mutable_mesh()->add_axes()->set_size(2);
  mesh.mutable_mesh()->add_axes()->set_size(2);
  mesh.add_axes()->set_mesh_axis_index(1);
  EXPECT_TRUE(Check(module, four).ok()) << Check(module, four).status();
  mesh.add_axes()->set_mesh_axis_index(1);
  ExpectRefused(module, "axis 1 twice", four);
  mesh.mutable_axes(1)->set_mesh_axis_index(2);
  ExpectRefused(module, "axis 2 of a mesh of 2", four);
  mesh.mutable_mesh()->mutable_axes(0)->set_size(kHuge);
  ExpectRefused(module, "positions", four);
}

TEST(ProgramCheckTest, Values) {
  const auto literal = [](const hlo::Shape& shape, size_t bytes) {
    return [=](hlo::Instruction& each) {
      *each.mutable_literal()->mutable_shape() = shape;
      each.mutable_literal()->add_f32s(std::string(bytes, '\0'));
    };
  };
  ExpectTaken(OneOp("constant", F32({2}), {}, literal(F32({2}), 8)));
  ExpectRefused(OneOp("constant", F32({2}), {}, literal(F32({2}), 4)),
                "does not have the elements");
  ExpectRefused(OneOp("constant", F32({2}), {}, literal(F32({2}), 12)), "does not have");
  ExpectRefused(OneOp("constant", F32({2}), {}, literal(F32({1}), 4)), "its literal is f32[1]");
  ExpectRefused(OneOp("constant", S32({2}), {}, literal(S32({2}), 8)),
                "does not have the elements");
  ExpectRefused(OneOp("negate", F32({2}), {F32({2})}, literal(F32({2}), 8)), "it has literal");
  ExpectTaken(OneOp("tuple", TupleOf({F32({2}), S32({})}), {F32({2}), S32({})}));
  ExpectRefused(OneOp("tuple", TupleOf({F32({2}), S32({})}), {F32({2}), F32({})}), "operand 1");
  ExpectRefused(OneOp("tuple", TupleOf({F32({2})}), {F32({2}), F32({})}), "for 2 operands");
  const auto part = [](int64_t index) {
    return [=](hlo::Instruction& each) { each.set_tuple_index(index); };
  };
  const auto pair = TupleOf({F32({2}), S32({})});
  ExpectTaken(OneOp("get-tuple-element", S32({}), {pair}, part(1)));
  ExpectRefused(OneOp("get-tuple-element", S32({}), {pair}, part(2)), "it takes part 2");
  ExpectRefused(OneOp("get-tuple-element", S32({}), {pair}, part(-1)), "it takes part -1");
  ExpectRefused(OneOp("get-tuple-element", S32({}), {pair}, part(0)), "give f32[2]");
  ExpectRefused(OneOp("get-tuple-element", S32({}), {S32({})}, part(0)), "it takes part 0");
  ExpectTaken(OneOp("opt-barrier", pair, {pair}));
  ExpectRefused(OneOp("opt-barrier", S32({}), {pair}), "its operands give");
  ExpectTaken(OneOp("after-all", Token(), {Token()}));
  ExpectRefused(OneOp("after-all", Token(), {S32({})}), "it waits for s32[]");
  ExpectTaken(OneOp("add-dependency", S32({}), {S32({}), Token()}));
  ExpectRefused(OneOp("add-dependency", S32({}), {S32({}), S32({})}), "it waits for s32[]");
}

TEST(ProgramCheckTest, RandomNumbersAndLargest) {
  const auto drawn = [](int kind) {
    return [=](hlo::Instruction& each) { each.set_distribution(kind); };
  };
  ExpectTaken(OneOp("rng", F32({4}), {F32({}), F32({})}, drawn(1)));
  ExpectTaken(OneOp("rng", S32({4}), {S32({}), S32({})}, drawn(1)));
  ExpectRefused(OneOp("rng", Pred({4}), {Pred({}), Pred({})}, drawn(1)), "distribution 1");
  ExpectRefused(OneOp("rng", F32({4}), {F32({}), F32({})}, drawn(3)), "distribution 3");
  ExpectRefused(OneOp("rng", S32({4}), {S32({}), S32({})}, drawn(2)), "distribution 2");
  ExpectRefused(OneOp("rng", F32({4}), {F32({}), S32({})}, drawn(1)), "it draws");
  const auto state = Array(xla::TYPE_U64, {2});
  ExpectTaken(OneOp("rng-bit-generator", TupleOf({state, U32({4})}), {state}));
  ExpectRefused(OneOp("rng-bit-generator", TupleOf({state, F32({4})}), {state}), "random bits of");
  ExpectRefused(OneOp("rng-bit-generator", TupleOf({U32({1}), U32({4})}), {U32({1})}),
                "use u64[2]");
  const auto k = [](int64_t k) { return [=](hlo::Instruction& each) { each.set_k(k); }; };
  ExpectTaken(OneOp("topk", TupleOf({F32({2, 3}), S32({2, 3})}), {F32({2, 9})}, k(3)));
  ExpectRefused(OneOp("topk", TupleOf({F32({2, 10}), S32({2, 10})}), {F32({2, 9})}, k(10)),
                "the 10");
  ExpectRefused(OneOp("topk", TupleOf({F32({2, 3}), U32({2, 3})}), {F32({2, 9})}, k(3)),
                "result 1");
}

TEST(ProgramCheckTest, WhatIsNotTakenIsNamedWithAWayOut) {
  for (const auto& [opcode, instead] : std::vector<std::pair<std::string, std::string>>{
           {"infeed", "as arguments"},
           {"outfeed", "host callback"},
           {"send", "collectives"},
           {"send-done", "collectives"},
           {"recv", "collectives"},
           {"recv-done", "collectives"},
           {"get-dimension-size", "pad arrays"},
           {"set-dimension-size", "pad arrays"},
           {"dynamic-reshape", "pad arrays"},
           {"fusion", "before XLA optimizes it"},
           {"bitcast", "reshape"},
           {"async-start", "before XLA optimizes it"},
           {"async-done", "before XLA optimizes it"},
           {"copy-start", "before XLA optimizes it"},
           {"all-reduce-start", "before XLA optimizes it"},
           {"domain", "leave it out"},
           {"rng-get-and-update-state", "rng-bit-generator"},
           {"what\nis this", "what\\nis this"}}) {
    const hlo::Module module = OneOp(opcode, F32({}), {F32({})});
    ExpectRefused(module, instead);
    EXPECT_TRUE(absl::IsUnimplemented(Check(module).status())) << opcode;
  }
}

TEST(ProgramCheckTest, CustomCallsGoToTheirRule) {
  const hlo::Module module = OneOp("custom-call", F32({2}), {F32({2})}, [](hlo::Instruction& each) {
    each.set_custom_call_target("target");
    auto& alias = *each.add_output_operand_aliasing();
    alias.set_operand_index(0);
  });
  int calls = 0;
  const CustomCallRule rule = [&](const CustomCallSite& site) {
    ++calls;
    EXPECT_EQ(site.call.custom_call_target(), "target");
    EXPECT_EQ(site.operands.size(), 1U);
    EXPECT_TRUE(site.computations.empty());
    return absl::InvalidArgumentError("no such call");
  };
  const auto checked =
      CheckProgram(module.SerializeAsString(), [&rule](const hlo::Module&) { return rule; });
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(absl::StrContains(checked.status().message(), "no such call")) << checked.status();
  hlo::Module wrong = module;
  auto& alias = *RootOf(wrong).mutable_output_operand_aliasing(0);
  alias.set_operand_index(1);
  ExpectRefused(wrong, "operand 1 of 1");
  alias.set_operand_index(0);
  alias.add_operand_shape_index(0);
  ExpectRefused(wrong, "whose shape is another one");
  alias.clear_operand_shape_index();
  *RootOf(wrong).add_output_operand_aliasing() = alias;
  ExpectRefused(wrong, "twice");
}

// A negation has none of the fields that belong to some opcodes. Those of all are left out here.
TEST(ProgramCheckTest, FieldsOfOtherOpcodes) {
  const std::set<std::string> of_all = {"name",
                                        "opcode",
                                        "shape",
                                        "metadata",
                                        "id",
                                        "operand_ids",
                                        "sharding",
                                        "control_predecessor_ids",
                                        "called_computation_ids",
                                        "statistics_viz",
                                        "frontend_attributes",
                                        "async_execution_thread"};
  const auto* descriptor = hlo::Instruction::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    if (of_all.contains(field->name())) continue;
    const hlo::Module module = OneOp("negate", F32({2}), {F32({2})}, [&](hlo::Instruction& each) {
      ASSERT_TRUE(google::protobuf::TextFormat::MergeFromString(TextOf(*field), &each));
    });
    ExpectRefused(module, absl::StrCat("it has ", field->name(), ", which belongs to other"));
  }
}

// A change of a module that is otherwise valid.
using Break = std::function<void(hlo::Module&)>;
void ExpectBroken(absl::string_view why, const Break& change) {
  hlo::Module module = OneOp("negate", F32({2, 3}), {F32({2, 3})});
  ExpectTaken(module);
  change(module);
  ExpectRefused(module, why);
}
hlo::Computation& EntryOf(hlo::Module& module) {
  return *module.mutable_computations(module.computations_size() - 1);
}

TEST(ProgramCheckTest, Shapes) {
  const auto shape = [](absl::string_view why, const std::function<void(hlo::Shape&)>& change) {
    ExpectBroken(why, [&](hlo::Module& module) { change(*RootOf(module).mutable_shape()); });
  };
  shape("negative", [](hlo::Shape& s) { s.set_dimensions(0, -1); });
  shape("larger than 2^47", [](hlo::Shape& s) { s.set_dimensions(0, kHuge); });
  shape("larger than 2^47",
        [](hlo::Shape& s) { Fill(s.mutable_dimensions(), {1 << 30, 1 << 30}); });
  shape("larger than 2^47", [](hlo::Shape& s) { Fill(s.mutable_dimensions(), {0, kHuge, 8}); });
  shape("is not known", [](hlo::Shape& s) { s.set_element_type(99); });
  shape("is not known", [](hlo::Shape& s) { s.set_element_type(14); });
  shape("dynamic dimensions", [](hlo::Shape& s) {
    s.add_is_dynamic_dimension(true);
    s.add_is_dynamic_dimension(false);
  });
  shape("no permutation", [](hlo::Shape& s) { s.mutable_layout()->set_minor_to_major(0, 0); });
  shape("no permutation", [](hlo::Shape& s) { s.mutable_layout()->set_minor_to_major(0, -1); });
  shape("tiles", [](hlo::Shape& s) { s.mutable_layout()->add_tiles()->add_dimensions(0); });
  shape("memory space 7", [](hlo::Shape& s) { s.mutable_layout()->set_memory_space(7); });
  shape("gives an element", [](hlo::Shape& s) { s.mutable_layout()->set_element_size_in_bits(4); });
  shape("has no parts", [](hlo::Shape& s) { *s.add_tuple_shapes() = F32({}); });
  shape("dimensions; at most 64", [](hlo::Shape& s) {
    for (int i = 0; i < 70; ++i) s.add_dimensions(1);
  });
  shape("nested deeper", [](hlo::Shape& s) {
    for (int i = 0; i < 20; ++i) s = TupleOf({s});
  });
}

TEST(ProgramCheckTest, Structure) {
  ExpectBroken("does not come before it", [](auto& m) { RootOf(m).set_operand_ids(0, 9); });
  ExpectBroken("does not come before it", [](auto& m) { RootOf(m).set_operand_ids(0, 2); });
  ExpectBroken("does not come before it",
               [](auto& m) { RootOf(m).set_operand_ids(0, (int64_t{1} << 32) + 1); });
  ExpectBroken("predecessor 2", [](auto& m) { RootOf(m).add_control_predecessor_ids(2); });
  ExpectBroken("another one's", [](auto& m) { RootOf(m).set_id(1); });
  ExpectBroken("another one's", [](auto& m) { RootOf(m).set_id((int64_t{1} << 32) + 1); });
  ExpectBroken("are too large", [](auto& m) { RootOf(m).set_id(int64_t{1} << 30); });
  ExpectBroken("is too large", [](auto& m) { EntryOf(m).set_id(int64_t{1} << 30); });
  ExpectBroken("its root 7", [](auto& m) { EntryOf(m).set_root_id(7); });
  ExpectBroken("parameter 3 of 1",
               [](auto& m) { EntryOf(m).mutable_instructions(0)->set_parameter_number(3); });
  ExpectBroken("lacks parameter 1",
               [](auto& m) { *EntryOf(m).mutable_program_shape()->add_parameters() = F32({}); });
  ExpectBroken("and in its signature",
               [](auto& m) { *EntryOf(m).mutable_program_shape()->mutable_result() = F32({}); });
  ExpectBroken("is not in it", [](auto& m) { m.set_entry_computation_id(9); });
  ExpectBroken("another one's", [](auto& m) { *m.add_computations() = m.computations(0); });
  ExpectBroken("a fusion's", [](auto& m) { EntryOf(m).set_is_fusion_computation(true); });
  ExpectBroken("thread to run on", [](auto& m) { EntryOf(m).set_execution_thread("host"); });
  ExpectBroken("control characters", [](auto& m) { RootOf(m).set_name("a\x1b[2J"); });
  ExpectBroken("it has backend_config", [](auto& m) { RootOf(m).set_backend_config("{}"); });
  ExpectBroken("a schedule", [](auto& m) { m.mutable_schedule(); });
  ExpectBroken("dynamic dimensions", [](auto& m) { m.set_is_dynamic(true); });
  ExpectBroken("automatic partitioning", [](auto& m) { m.set_use_auto_spmd_partitioning(true); });
  ExpectBroken("stack frame 4",
               [](auto& m) { RootOf(m).mutable_metadata()->set_stack_frame_id(4); });
  ExpectBroken("stack frame 1 names", [](auto& m) {
    m.mutable_stack_frame_index()->add_stack_frames()->set_parent_frame_id(1);
  });
  hlo::Module product = OneOp("dot", F32({}), {F32({}), F32({})});
  ExpectTaken(product);
  RootOf(product).mutable_precision_config()->set_algorithm(99);
  ExpectRefused(product, "precision is not known");
  EXPECT_FALSE(CheckProgram("\x0a\xff", TakeAnyCall).ok());
  EXPECT_FALSE(CheckProgram("", TakeAnyCall).ok());
}

TEST(ProgramCheckTest, Interface) {
  ExpectBroken("the module has 0 parameters",
               [](auto& m) { m.mutable_host_program_shape()->clear_parameters(); });
  ExpectBroken("the result of the module is",
               [](auto& m) { *m.mutable_host_program_shape()->mutable_result() = F32({6}); });
  const auto alias = [](hlo::Module& m) -> auto& {
    auto& entry = *m.mutable_input_output_alias()->add_entries();
    entry.set_kind(1);
    return entry;
  };
  hlo::Module shared = OneOp("negate", F32({2}), {F32({2})});
  alias(shared);
  ExpectTaken(shared);
  ExpectBroken("parameter 5 of 1", [&](auto& m) { alias(m).set_parameter_number(5); });
  ExpectBroken("that is no array", [&](auto& m) { alias(m).add_parameter_shape_index(0); });
  ExpectBroken("not there", [&](auto& m) { alias(m).add_output_shape_index(0); });
  ExpectBroken("of kind 0", [&](auto& m) { alias(m).set_kind(0); });
  ExpectBroken("twice", [&](auto& m) { alias(m), alias(m); });
  ExpectBroken("twice", [&](auto& m) {
    alias(m);
    m.mutable_buffer_donor()->add_entries();
  });
  ExpectRefused(
      [&] {
        hlo::Module other = OneOp("reshape", F32({6}), {F32({2, 3})});
        alias(other);
        return other;
      }(),
      "shares memory with a result that is f32[6]");
  ExpectBroken("names a device twice", [](auto& m) {
    auto& devices = *m.mutable_device_assignment();
    devices.set_replica_count(2);
    devices.set_computation_count(1);
    Fill(devices.add_computation_devices()->mutable_replica_device_ids(), {1, 1});
  });
}

TEST(ProgramCheckTest, Shardings) {
  const Positions four{.replicas = 1, .partitions = 4};
  const auto with = [](const std::function<void(hlo::Sharding&)>& change) {
    hlo::Module module = OneOp("negate", F32({2, 3}), {F32({2, 3})});
    auto& sharding = *RootOf(module).mutable_sharding();
    sharding.set_type(3);
    Fill(sharding.mutable_tile_assignment_dimensions(), {2, 2});
    Fill(sharding.mutable_tile_assignment_devices(), {0, 1, 2, 3});
    change(sharding);
    return module;
  };
  EXPECT_TRUE(Check(with([](auto&) {}), four).ok());
  ExpectRefused(with([](auto&) {}), "the program has 2", {1, 2});
  ExpectRefused(with([](auto& s) { s.set_tile_assignment_devices(0, 1); }), "once", four);
  ExpectRefused(with([](auto& s) { s.set_tile_assignment_devices(0, 9); }), "once", four);
  ExpectRefused(with([](auto& s) { s.set_replicate_on_last_tile_dim(true); }), "2 dimensions",
                four);
  ExpectRefused(with([](auto& s) { s.set_tile_assignment_dimensions(0, kHuge); }), "positions",
                four);
  ExpectRefused(with([](auto& s) { s.set_type(9); }), "of kind 9", four);
  ExpectRefused(with([](auto& s) { s.set_type(2); }), "0 parts is for", four);
  ExpectRefused(with([](auto& s) { s.add_tuple_shardings(); }), "has parts", four);
  ExpectRefused(with([](auto& s) {
                  s.set_type(1);
                  Fill(s.mutable_tile_assignment_devices(), {4});
                }),
                "does not have", four);
  ExpectRefused(with([](auto& s) {
                  s.mutable_named_sharding()->mutable_mesh()->add_axes()->set_size(4);
                  s.mutable_named_sharding()->add_dim_shardings()->add_axes();
                }),
                "1 dimensions is for", four);
}

TEST(ProgramCheckTest, FrontendAttributes) {
  const auto with = [](const std::string& key, const std::string& value) {
    return OneOp("negate", F32({2}), {F32({2})}, [&](hlo::Instruction& each) {
      (*each.mutable_frontend_attributes()->mutable_map())[key] = value;
    });
  };
  ExpectTaken(with("my_tool", "anything"));
  ExpectRefused(with("_xla_disable_loop_instr_hoisting", "1"), "is not known");
  ExpectRefused(with("xla.sdy.what", "1"), "is not known");
  ExpectRefused(with("key", std::string(2 << 20, 'x')), "too long");
}

TEST(ProgramCheckTest, IntegersOfOneBitAreRefused) {
  for (const int type : {xla::TYPE_S1, xla::TYPE_U1}) {
    ExpectRefused(OneOp("convert", Array(type, {24}), {F32({24})}), "is not known");
    ExpectRefused(OneOp("iota", Array(type, {8}), {}), "is not known");
  }
  for (const int type : {xla::TYPE_S2, xla::TYPE_U2, xla::TYPE_S4, xla::TYPE_U4})
    ExpectTaken(OneOp("convert", Array(type, {24}), {F32({24})}));
}

// XLA's Shardy parses these, and ends the compiler's process for what it does not find: a mesh that the module lacks,
// found by mutations, is a null pointer there.
TEST(ProgramCheckTest, TextsOfShardings) {
  const auto with = [](const std::string& sharding, const std::string& meshes) {
    hlo::Module module = OneOp("negate", F32({2}), {F32({2})}, [&](hlo::Instruction& each) {
      (*each.mutable_frontend_attributes()->mutable_map())["xla.sdy.sharding"] = sharding;
    });
    (*module.mutable_frontend_attributes()->mutable_map())["xla.sdy.meshes"] = meshes;
    return module;
  };
  const std::string mesh = R"({mesh = #sdy.mesh<["a"=2]>})";
  const Positions two = {.replicas = 1, .partitions = 2};
  ExpectTaken(with(R"(#sdy.sharding<@mesh, [{"a"}]>)", mesh), two);
  ExpectTaken(with(R"(#sdy.sharding_per_value<[<@mesh, [{?}]>]>)", mesh), two);
  ExpectTaken(with("#sdy.sharding<@one, []>", "{one = #sdy.mesh<[], device_ids=[1]>}"), two);
  ExpectRefused(with(R"(#sdy.sharding<@other, [{"a"}]>)", mesh), "does not have", two);
  ExpectRefused(with(R"(#sdy.sharding<@mesh, [{"a"}]>)", "{}"), "does not have", two);
  ExpectRefused(with(R"(#sdy.sharding<@mesh, [{"b"}]>)", mesh), "does not have", two);
  ExpectRefused(with(R"(#sdy.sharding<@mesh, [{"a"}, {}]>)", mesh), "2 dimensions", two);
  ExpectRefused(with(R"(#sdy.sharding<@mesh, [{"a"}]>)", mesh), "over 2 positions",
                {.replicas = 1, .partitions = 4});
  ExpectRefused(with(R"(#sdy.sharding_per_value<[<@mesh, [{}]>, <@mesh, [{}]>]>)", mesh),
                "has 2 shardings", two);
  ExpectRefused(with("#sdy.sharding<@mesh", mesh), "malformed", two);
  ExpectRefused(with("#sdy.sharding<@mesh, [{}]>", "{mesh = #sdy.mesh<"), "malformed", two);
  for (const char* ids : {"[0]", "[0, 0]", "[1, 2]", "[-1, 0]", "[0, 1, 2]"})
    ExpectRefused(with("#sdy.sharding<@mesh, [{}]>",
                       R"({mesh = #sdy.mesh<["a"=2], device_ids=)" + std::string(ids) + ">}"),
                  "device_id", two);
}

}  // namespace
}  // namespace gangway::compiler
