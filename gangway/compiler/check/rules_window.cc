// Rules of opcodes that move a window over an array.
#include <optional>
#include <vector>

#include "gangway/base/status.h"
#include "gangway/compiler/check/rules.h"

namespace gangway::compiler {
namespace {

// The number of places of a window along a dimension of `size` elements. None if the window is not possible there.
std::optional<int64_t> Places(int64_t size, const xla::hlo::WindowDimension& window) {
  const auto is_size = [](int64_t n) { return n >= 1 && n <= kArrayBytesMax; };
  const auto is_padding = [](int64_t n) { return n >= -kArrayBytesMax && n <= kArrayBytesMax; };
  if (!is_size(window.size()) || !is_size(window.stride()) || !is_size(window.window_dilation()) ||
      !is_size(window.base_dilation()) || !is_padding(window.padding_low()) ||
      !is_padding(window.padding_high()))
    return std::nullopt;
  const __int128 spread = size == 0 ? 0 : (size - 1) * __int128{window.base_dilation()} + 1;
  const __int128 padded = spread + window.padding_low() + window.padding_high();
  const __int128 covered = (window.size() - 1) * __int128{window.window_dilation()} + 1;
  if (padded < 0 || padded > kArrayBytesMax || covered > kArrayBytesMax) return std::nullopt;
  if (covered > padded) return 0;
  return static_cast<int64_t>((padded - covered) / window.stride() + 1);
}

absl::Status WindowedDims(const Site& site, const Shape& over, std::vector<int64_t>& dims) {
  const auto& windows = site.self.window().dimensions();
  if (windows.size() != Rank(over))
    return Bad("its window has ", windows.size(), " dimensions over ", Text(over));
  for (const auto& window : windows) {
    const int64_t size = Dim(over, static_cast<int64_t>(dims.size()));
    const auto places = Places(size, window);
    if (!places) return Bad("its window does not fit dimension ", dims.size(), " of ", Text(over));
    dims.push_back(*places);
  }
  return absl::OkStatus();
}

bool IsScalarOf(const Shape& shape, int type) {
  return IsScalar(shape) && shape.element_type() == type;
}

}  // namespace

absl::Status CheckReduceWindow(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const size_t n = site.operands.size() / 2;
  if (site.operands.size() != 2 * n) return Bad("it has ", site.operands.size(), " operands");
  std::vector<int64_t> dims;
  GANGWAY_RETURN_IF_ERROR(WindowedDims(site, site.operand(0), dims));
  std::vector<int> types;
  std::vector<Shape> results;
  for (size_t i = 0; i < n; ++i) {
    const Shape& array = site.operand(i);
    if (!SameDims(array, site.operand(0)) || !IsScalarOf(site.operand(n + i), array.element_type()))
      return Bad("it reduces ", Text(array), " from ", Text(site.operand(n + i)));
    types.push_back(array.element_type());
    Shape& result = results.emplace_back();
    result.set_element_type(array.element_type());
    result.mutable_dimensions()->Add(dims.begin(), dims.end());
  }
  GANGWAY_RETURN_IF_ERROR(ExpectReducer(*site.callees[0], types));
  return ExpectResults(site, results);
}

// Each window must hold an element of the array: XLA scatters to the place that it selects.
absl::Status CheckSelectAndScatter(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& array = site.operand(0);
  const Shape& source = site.operand(1);
  const int type = array.element_type();
  std::vector<int64_t> dims;
  GANGWAY_RETURN_IF_ERROR(WindowedDims(site, array, dims));
  for (const auto& window : site.self.window().dimensions())
    if (window.padding_low() < 0 || window.padding_low() >= window.size() ||
        window.padding_high() < 0 || window.padding_high() >= window.size() ||
        window.base_dilation() != 1 || window.window_dilation() != 1 || window.window_reversal())
      return NotTaken("its window may hold no element of ", Text(array),
                      ": pad less than a window, and do not dilate");
  if (source.element_type() != type || !HasDims(source, dims))
    return Bad("it scatters ", Text(source), ", and its windows give ", Text(type, dims));
  if (!IsScalarOf(site.operand(2), type))
    return Bad("it starts from ", Text(site.operand(2)), " for ", Text(array));
  const int pair[] = {type, type};
  GANGWAY_RETURN_IF_ERROR(ExpectScalars(*site.callees[0], pair, xla::TYPE_PRED));
  GANGWAY_RETURN_IF_ERROR(ExpectScalars(*site.callees[1], pair, type));
  return ExpectShape(site, array);
}

namespace {

// Sizes of the operands and the result by meaning.
struct Convolved {
  int64_t batch, feature, kernel_in, kernel_out, result_batch, result_feature;
  std::vector<int64_t> input, kernel, result;  // spatial
};

bool Read(const Shape& shape, int64_t first, int64_t second, std::span<const int64_t> spatial,
          std::vector<int64_t>& sizes) {
  std::vector<int64_t> all{first, second};
  all.insert(all.end(), spatial.begin(), spatial.end());
  if (!IsPermutation(all, Rank(shape))) return false;
  for (const int64_t dim : spatial) sizes.push_back(Dim(shape, dim));
  return true;
}

absl::Status ReadConvolution(const Site& site, Convolved& by) {
  const Shape& input = site.operand(0);
  const Shape& kernel = site.operand(1);
  const Shape& result = site.shape();
  const auto& numbers = site.self.convolution_dimension_numbers();
  if (!IsArray(result) ||
      !Read(input, numbers.input_batch_dimension(), numbers.input_feature_dimension(),
            SpanOf(numbers.input_spatial_dimensions()), by.input) ||
      !Read(kernel, numbers.kernel_input_feature_dimension(),
            numbers.kernel_output_feature_dimension(), SpanOf(numbers.kernel_spatial_dimensions()),
            by.kernel) ||
      !Read(result, numbers.output_batch_dimension(), numbers.output_feature_dimension(),
            SpanOf(numbers.output_spatial_dimensions()), by.result))
    return Bad("its dimension numbers do not name each dimension of ", Text(input), ", ",
               Text(kernel), " and ", Text(result), " once");
  by.batch = Dim(input, numbers.input_batch_dimension());
  by.feature = Dim(input, numbers.input_feature_dimension());
  by.kernel_in = Dim(kernel, numbers.kernel_input_feature_dimension());
  by.kernel_out = Dim(kernel, numbers.kernel_output_feature_dimension());
  by.result_batch = Dim(result, numbers.output_batch_dimension());
  by.result_feature = Dim(result, numbers.output_feature_dimension());
  return absl::OkStatus();
}

// Unset counts are 1.
absl::Status CheckGroups(const Site& site, const Convolved& by) {
  const int64_t features =
      site.self.feature_group_count() == 0 ? 1 : site.self.feature_group_count();
  const int64_t batches = site.self.batch_group_count() == 0 ? 1 : site.self.batch_group_count();
  if (features < 1 || batches < 1 || (features > 1 && batches > 1))
    return Bad("it has ", features, " groups of features and ", batches, " of batches");
  if (by.feature % features != 0 || by.feature / features != by.kernel_in ||
      by.kernel_out % features != 0)
    return Bad("it convolves ", by.feature, " features in ", features, " groups with ",
               by.kernel_in, " x ", by.kernel_out);
  if (by.batch % batches != 0 || by.kernel_out % batches != 0)
    return Bad("it divides a batch of ", by.batch, " and ", by.kernel_out, " features into ",
               batches, " groups");
  if (by.result_batch != by.batch / batches || by.result_feature != by.kernel_out)
    return Bad("its shape is ", Text(site.shape()), " for a batch of ", by.batch / batches, " and ",
               by.kernel_out, " features");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckConvolution(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const int type = site.operand(0).element_type();
  const int result = site.shape().element_type();
  if (!AreAlike(site.operand(1).element_type(), type) || !AreAlike(result, type) ||
      BitsOf(result) < BitsOf(type) || BitsOf(result) < BitsOf(site.operand(1).element_type()))
    return Bad("it makes ", Text(site.shape()), " of ", Text(site.operand(0)), " and ",
               Text(site.operand(1)));
  Convolved by{};
  GANGWAY_RETURN_IF_ERROR(ReadConvolution(site, by));
  GANGWAY_RETURN_IF_ERROR(CheckGroups(site, by));
  const auto& windows = site.self.window().dimensions();
  if (static_cast<size_t>(windows.size()) != by.input.size() ||
      by.kernel.size() != by.input.size() || by.result.size() != by.input.size())
    return Bad("its window has ", windows.size(), " dimensions");
  for (size_t i = 0; i < by.input.size(); ++i) {
    const auto& window = windows.Get(static_cast<int>(i));
    const auto places = Places(by.input[i], window);
    if (window.size() != by.kernel[i] || !places || *places != by.result[i])
      return Bad("its window does not fit spatial dimension ", i, " of ", Text(site.operand(0)),
                 " and ", Text(site.shape()));
  }
  return absl::OkStatus();
}

}  // namespace gangway::compiler
