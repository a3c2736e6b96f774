// Rules of opcodes that only place the elements of their operands anew.
#include <vector>

#include "gangway/base/status.h"
#include "gangway/compiler/check/rules.h"

namespace gangway::compiler {

absl::Status CheckBroadcast(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& from = site.operand(0);
  const Shape& to = site.shape();
  const auto dims = SpanOf(site.self.dimensions());
  if (!IsArray(to) || to.element_type() != from.element_type())
    return Bad("it makes ", Text(to), " of ", Text(from));
  if (static_cast<int64_t>(dims.size()) != Rank(from) || !AreDistinct(dims, Rank(to)))
    return Bad("its dimensions do not map ", Text(from), " into ", Text(to));
  for (size_t i = 0; i < dims.size(); ++i)
    if (Dim(to, dims[i]) != Dim(from, static_cast<int64_t>(i)))
      return Bad("dimension ", i, " of ", Text(from), " becomes dimension ", dims[i], " of ",
                 Text(to));
  return absl::OkStatus();
}

absl::Status CheckReshape(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& from = site.operand(0);
  const Shape& to = site.shape();
  if (!IsArray(to) || to.element_type() != from.element_type() || Elements(to) != Elements(from))
    return Bad("it makes ", Text(to), " of ", Text(from));
  return absl::OkStatus();
}

absl::Status CheckTranspose(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& from = site.operand(0);
  const auto order = SpanOf(site.self.dimensions());
  if (!IsPermutation(order, Rank(from)))
    return Bad("its dimensions are no permutation of those of ", Text(from));
  std::vector<int64_t> dims;
  for (const int64_t i : order) dims.push_back(Dim(from, i));
  return ExpectArray(site, from.element_type(), dims);
}

absl::Status CheckReverse(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  if (!AreDistinct(SpanOf(site.self.dimensions()), Rank(site.operand(0))))
    return Bad("it reverses dimensions that ", Text(site.operand(0)), " does not have");
  return ExpectShape(site, site.operand(0));
}

absl::Status CheckSlice(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& from = site.operand(0);
  if (site.self.slice_dimensions_size() != Rank(from))
    return Bad("it slices ", site.self.slice_dimensions_size(), " dimensions of ", Text(from));
  std::vector<int64_t> dims;
  for (const auto& slice : site.self.slice_dimensions()) {
    const int64_t size = Dim(from, static_cast<int64_t>(dims.size()));
    if (slice.start() < 0 || slice.limit() < slice.start() || slice.limit() > size ||
        slice.stride() < 1)
      return Bad("it takes elements ", slice.start(), " to ", slice.limit(), " in steps of ",
                 slice.stride(), " of a dimension of size ", size);
    const int64_t length = slice.limit() - slice.start();
    dims.push_back(length == 0 ? 0 : (length - 1) / slice.stride() + 1);
  }
  return ExpectArray(site, from.element_type(), dims);
}

absl::Status CheckConcatenate(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& first = site.operand(0);
  if (site.self.dimensions_size() != 1 || !AreDistinct(SpanOf(site.self.dimensions()), Rank(first)))
    return Bad("it does not name a dimension of ", Text(first));
  // XLA's CPU compiler ends its process over them.
  if (BitsOf(first.element_type()) < 4)
    return NotTaken("it joins elements of less than 4 bits: convert them to s8 or u8 before");
  const int64_t along = site.self.dimensions(0);
  std::vector<int64_t> dims(first.dimensions().begin(), first.dimensions().end());
  int64_t& sum = dims[static_cast<size_t>(along)];
  sum = 0;
  for (const Shape* part : site.operands) {
    if (part->element_type() != first.element_type() || Rank(*part) != Rank(first))
      return Bad("it joins ", Text(first), " and ", Text(*part));
    for (int64_t i = 0; i < Rank(first); ++i)
      if (i != along && Dim(*part, i) != Dim(first, i))
        return Bad("it joins ", Text(first), " and ", Text(*part), " along dimension ", along);
    sum += Dim(*part, along);
    if (sum > kArrayBytesMax) return Bad("its result is larger than 2^47 bytes");
  }
  return ExpectArray(site, first.element_type(), dims);
}

absl::Status CheckPad(const Site& site) {
  GANGWAY_RETURN_IF_ERROR(ExpectArrays(site));
  const Shape& from = site.operand(0);
  const Shape& value = site.operand(1);
  if (!IsScalar(value) || value.element_type() != from.element_type())
    return Bad("it pads ", Text(from), " with ", Text(value));
  const auto& padding = site.self.padding_config().dimensions();
  if (padding.size() != Rank(from))
    return Bad("it pads ", padding.size(), " dimensions of ", Text(from));
  std::vector<int64_t> dims;
  for (const auto& pad : padding) {
    const __int128 size = Dim(from, static_cast<int64_t>(dims.size()));
    const __int128 inner = (size > 0 ? size - 1 : 0) * __int128{pad.interior_padding()};
    const __int128 padded = size + inner + pad.edge_padding_low() + pad.edge_padding_high();
    const bool is_small =
        pad.edge_padding_low() > -kArrayBytesMax && pad.edge_padding_high() > -kArrayBytesMax &&
        pad.edge_padding_low() < kArrayBytesMax && pad.edge_padding_high() < kArrayBytesMax;
    if (pad.interior_padding() < 0 || pad.interior_padding() >= kArrayBytesMax || !is_small ||
        padded < 0 || padded > kArrayBytesMax)
      return Bad("it pads dimension ", dims.size(), " of ", Text(from), " to no possible size");
    dims.push_back(static_cast<int64_t>(padded));
  }
  return ExpectArray(site, from.element_type(), dims);
}

absl::Status CheckIota(const Site& site) {
  const Shape& to = site.shape();
  if (!IsArray(to) || IsPred(to.element_type())) return Bad("it does not count in ", Text(to));
  if (site.self.dimensions_size() != 1 || !AreDistinct(SpanOf(site.self.dimensions()), Rank(to)))
    return Bad("it does not name a dimension of ", Text(to));
  return absl::OkStatus();
}

}  // namespace gangway::compiler
