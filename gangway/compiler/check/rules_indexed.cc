// Rules of opcodes that take places from an array. The indices are values: XLA clamps those of slices and gathers, and
// skips updates outside, so only the static part is judged here.
#include <algorithm>
#include <vector>

#include "gangway/base/status.h"
#include "gangway/compiler/check/rules.h"

namespace gangway::compiler {
namespace {

// From operand `first` on: one scalar for each dimension of the array, all of one integer type.
absl::Status CheckStarts(const Site& site, size_t first, const Shape& array) {
  if (static_cast<int64_t>(site.operands.size() - first) != Rank(array))
    return Bad("it has ", site.operands.size() - first, " start indices for ", Text(array),
               ": give one scalar for each dimension");
  for (size_t i = first; i < site.operands.size(); ++i) {
    const Shape& start = site.operand(i);
    if (!IsScalar(start) || !IsInteger(start.element_type()) ||
        start.element_type() != site.operand(first).element_type())
      return Bad("start index ", i - first, " is ", Text(start));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDynamicSlice(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& from = site.operand(0);
  GANGWAY_RETURN_IF_ERROR(CheckStarts(site, 1, from));
  const auto sizes = SpanOf(site.self.dynamic_slice_sizes());
  if (static_cast<int64_t>(sizes.size()) != Rank(from))
    return Bad("it slices ", sizes.size(), " dimensions of ", Text(from));
  for (int64_t i = 0; i < Rank(from); ++i) {
    const int64_t size = sizes[static_cast<size_t>(i)];
    if (size < 0 || size > Dim(from, i))
      return Bad("it takes ", size, " elements of dimension ", i, " of ", Text(from));
  }
  return ExpectArray(site, from.element_type(), sizes);
}

absl::Status CheckDynamicUpdateSlice(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& into = site.operand(0);
  const Shape& update = site.operand(1);
  GANGWAY_RETURN_IF_ERROR(CheckStarts(site, 2, into));
  bool fits = update.element_type() == into.element_type() && Rank(update) == Rank(into);
  for (int64_t i = 0; fits && i < Rank(into); ++i) fits = Dim(update, i) <= Dim(into, i);
  if (!fits) return Bad("it writes ", Text(update), " into ", Text(into));
  return ExpectShape(site, into);
}

namespace {

// What the dimension numbers of gathers and scatters have in common.
struct Indexing {
  std::span<const int64_t> index_map;  // a part of an index -> dimension of the array
  std::span<const int64_t> collapsed;  // dimensions of the array that windows lack
  std::span<const int64_t> batching;   // dimensions of the array, each with one of the indices
  std::span<const int64_t> index_batching;
  int64_t index_vector_dim;
};

// The dimensions of the indices without the one that holds the parts of an index.
std::vector<int64_t> BatchDims(const Shape& indices, int64_t index_vector_dim) {
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < Rank(indices); ++i)
    if (i != index_vector_dim) dims.push_back(Dim(indices, i));
  return dims;
}

absl::Status CheckIndexBatching(const Indexing& by, const Shape& array, const Shape& indices) {
  if (!AreAscending(by.batching, Rank(array)) || !AreDistinct(by.index_batching, Rank(indices)) ||
      by.batching.size() != by.index_batching.size() ||
      Contains(by.index_batching, by.index_vector_dim))
    return Bad("its batching dimensions do not fit ", Text(array), " and ", Text(indices));
  for (size_t i = 0; i < by.batching.size(); ++i) {
    if (Contains(by.collapsed, by.batching[i]) || Contains(by.index_map, by.batching[i]))
      return Bad("dimension ", by.batching[i], " is batched and indexed");
    if (Dim(array, by.batching[i]) != Dim(indices, by.index_batching[i]))
      return Bad("batching dimension ", i, " has different sizes in ", Text(array), " and ",
                 Text(indices));
  }
  return absl::OkStatus();
}

absl::Status CheckIndexing(const Indexing& by, const Shape& array, const Shape& indices) {
  if (!IsInteger(indices.element_type())) return Bad("its indices are ", Text(indices));
  if (by.index_vector_dim < 0 || by.index_vector_dim > Rank(indices))
    return Bad("its index_vector_dim is ", by.index_vector_dim, " in ", Text(indices));
  const int64_t parts =
      by.index_vector_dim == Rank(indices) ? 1 : Dim(indices, by.index_vector_dim);
  if (static_cast<int64_t>(by.index_map.size()) != parts || !AreDistinct(by.index_map, Rank(array)))
    return Bad("its indices have ", parts, " parts, which do not map to dimensions of ",
               Text(array));
  if (!AreAscending(by.collapsed, Rank(array)))
    return Bad("its collapsed dimensions are not those of ", Text(array));
  return CheckIndexBatching(by, array, indices);
}

// The sizes that a window has in the dimensions of the array which are neither collapsed nor batching.
std::vector<int64_t> Remaining(const Indexing& by, std::span<const int64_t> sizes) {
  std::vector<int64_t> kept;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (const auto dim = static_cast<int64_t>(i);
        !Contains(by.collapsed, dim) && !Contains(by.batching, dim))
      kept.push_back(sizes[i]);
  return kept;
}

// `window` at the dimensions `at`, in order, and `batch` at the others.
std::vector<int64_t> Interleave(std::span<const int64_t> window, std::span<const int64_t> batch,
                                std::span<const int64_t> at) {
  std::vector<int64_t> dims;
  size_t next_window = 0, next_batch = 0;
  for (size_t i = 0; i < window.size() + batch.size(); ++i)
    dims.push_back(Contains(at, static_cast<int64_t>(i)) ? window[next_window++]
                                                         : batch[next_batch++]);
  return dims;
}

}  // namespace

absl::Status CheckGather(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& array = site.operand(0);
  const Shape& indices = site.operand(1);
  const auto& numbers = site.self.gather_dimension_numbers();
  const Indexing by{.index_map = SpanOf(numbers.start_index_map()),
                    .collapsed = SpanOf(numbers.collapsed_slice_dims()),
                    .batching = SpanOf(numbers.operand_batching_dims()),
                    .index_batching = SpanOf(numbers.start_indices_batching_dims()),
                    .index_vector_dim = numbers.index_vector_dim()};
  GANGWAY_RETURN_IF_ERROR(CheckIndexing(by, array, indices));
  const auto sizes = SpanOf(site.self.gather_slice_sizes());
  if (static_cast<int64_t>(sizes.size()) != Rank(array))
    return Bad("it takes windows of ", sizes.size(), " dimensions from ", Text(array));
  for (int64_t i = 0; i < Rank(array); ++i) {
    const int64_t size = sizes[static_cast<size_t>(i)];
    const bool is_left_out = Contains(by.collapsed, i) || Contains(by.batching, i);
    // XLA counts on one element in a dimension that windows lack, if the array has any.
    const bool fits = is_left_out ? size == std::min<int64_t>(1, Dim(array, i))
                                  : size >= 0 && size <= Dim(array, i);
    if (!fits) return Bad("it takes ", size, " elements of dimension ", i, " of ", Text(array));
  }
  const auto window = Remaining(by, sizes);
  const auto batch = BatchDims(indices, by.index_vector_dim);
  const auto offsets = SpanOf(numbers.offset_dims());
  const auto rank = static_cast<int64_t>(window.size() + batch.size());
  if (offsets.size() != window.size() || rank > kRankMax || !AreAscending(offsets, rank))
    return Bad("its offset_dims do not name the ", window.size(), " dimensions of a window");
  return ExpectArray(site, array.element_type(), Interleave(window, batch, offsets));
}

namespace {

absl::Status CheckUpdates(const Indexing& by, std::span<const int64_t> window_dims,
                          const Shape& array, const Shape& indices, const Shape& updates) {
  const auto bounds = Remaining(by, DimsOf(array));
  const auto batch = BatchDims(indices, by.index_vector_dim);
  const auto rank = static_cast<int64_t>(bounds.size() + batch.size());
  if (window_dims.size() != bounds.size() || Rank(updates) != rank ||
      !AreAscending(window_dims, rank))
    return Bad("its update_window_dims do not fit ", Text(updates));
  std::vector<int64_t> window;
  for (size_t i = 0; i < window_dims.size(); ++i) {
    window.push_back(Dim(updates, window_dims[i]));
    if (window.back() > bounds[i])
      return Bad("its windows have ", window.back(), " elements where ", Text(array), " has ",
                 bounds[i]);
  }
  if (!HasDims(updates, Interleave(window, batch, window_dims)))
    return Bad("its updates are ", Text(updates), " for indices ", Text(indices));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckScatter(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const size_t n = site.operands.size() / 2;
  if (n == 0 || site.operands.size() != 2 * n + 1)
    return Bad("it has ", site.operands.size(), " operands");
  const Shape& indices = site.operand(n);
  const auto& numbers = site.self.scatter_dimension_numbers();
  const Indexing by{.index_map = SpanOf(numbers.scatter_dims_to_operand_dims()),
                    .collapsed = SpanOf(numbers.inserted_window_dims()),
                    .batching = SpanOf(numbers.input_batching_dims()),
                    .index_batching = SpanOf(numbers.scatter_indices_batching_dims()),
                    .index_vector_dim = numbers.index_vector_dim()};
  GANGWAY_RETURN_IF_ERROR(CheckIndexing(by, site.operand(0), indices));
  GANGWAY_RETURN_IF_ERROR(CheckUpdates(by, SpanOf(numbers.update_window_dims()), site.operand(0),
                                       indices, site.operand(n + 1)));
  std::vector<int> types;
  std::vector<Shape> results;
  for (size_t i = 0; i < n; ++i) {
    const Shape& array = site.operand(i);
    const Shape& update = site.operand(n + 1 + i);
    if (!SameDims(array, site.operand(0)) || !SameDims(update, site.operand(n + 1)) ||
        array.element_type() != update.element_type())
      return Bad("its operands differ: ", Text(array), " is updated by ", Text(update));
    types.push_back(array.element_type());
    results.push_back(array);
  }
  GANGWAY_RETURN_IF_ERROR(ExpectReducer(*site.callees[0], types));
  return ExpectResults(site, results);
}

}  // namespace gangway::compiler
